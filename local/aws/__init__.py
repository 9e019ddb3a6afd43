"""AWS on one machine: moto in this process on the world's clock, with additions where moto differs from AWS."""
