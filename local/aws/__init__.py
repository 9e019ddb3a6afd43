"""AWS on one machine: moto in this process, with what moto lacks added, on the world's clock."""
