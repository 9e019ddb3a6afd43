#!/bin/sh
# Runs a command as Lambda would: the bundle in /var/task, Lambda's packages in /var/runtime, its Python in /var/lang,
# all read-only; an empty /tmp that can be written; nothing else of this machine but its system libraries; as nobody.
# It runs in a mount namespace of its own: sandbox.sh ROOT BUNDLE CLIENT SDK PYTHON EMULATOR [VARIABLE=VALUE...] COMMAND
set -eu
root=$1 bundle=$2 client=$3 sdk=$4 python=$5 emulator=$6
shift 6

mount -t tmpfs -o mode=0755 tmpfs "$root"
mkdir -p "$root/dev" "$root/etc" "$root/proc" "$root/tmp" "$root/usr" "$root/var/task" "$root/var/lang" \
	"$root/var/runtime/client" "$root/var/runtime/sdk"
read_only() { # FROM TO
	mount --bind "$1" "$2"
	mount -o remount,bind,ro "$2"
}
read_only /usr "$root/usr"
for folder in bin lib lib64; do
	if [ -L "/$folder" ]; then
		cp -P "/$folder" "$root/$folder"
	elif [ -d "/$folder" ]; then
		mkdir "$root/$folder"
		read_only "/$folder" "$root/$folder"
	fi
done
for device in null random urandom zero; do
	: >"$root/dev/$device"
	mount --bind "/dev/$device" "$root/dev/$device"
done
cp /etc/ld.so.cache "$root/etc/"
: >"$root/emulator"
read_only "$bundle" "$root/var/task"
read_only "$client" "$root/var/runtime/client"
read_only "$sdk" "$root/var/runtime/sdk"
read_only "$python" "$root/var/lang"
read_only "$emulator" "$root/emulator"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -o remount,ro "$root"

# Where the namespace has no other user than root, its root is this machine's ordinary user.
as_nobody="/usr/bin/setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set=-all --no-new-privs"
chroot "$root" $as_nobody /usr/bin/true 2>/dev/null || as_nobody="/usr/bin/setpriv --no-new-privs"
exec chroot "$root" $as_nobody /usr/bin/env -i -C /var/task "$@"
