// Go finds the module's folder by this file and doesn't read it: kubernetes-1.36.mod and its like have the versions.
module tenon.sh/tests/real/control-plane

go 1.26.0
