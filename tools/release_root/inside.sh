#!/bin/bash
# The first process of a run's namespaces: a view of the root in which everything may be written and nothing is kept, with the folders
# that are shared with this machine; then the command, as the machine's user.
#
#   inside.sh ROOT MOUNT-POINT FOLDER... -- WORKING-FOLDER COMMAND...
#
# FOLDERs lie at the same path in the view, and what is written there is written here. The exit status is the command's, or 125.
set -uo pipefail
fail() { echo "release-root: $*" >&2; exit 125; }
trap 'fail "cannot prepare the root: line $LINENO failed"' ERR

root=$1 stage=$2
shift 2
view=$stage/view
mount -t tmpfs -o mode=755 gloo-bypass "$stage"
mkdir "$stage/upper" "$stage/work" "$view"
mount -t overlay -o "lowerdir=$root,upperdir=$stage/upper,workdir=$stage/work" overlay "$view"
mount --rbind /dev "$view/dev"
mount --rbind /sys "$view/sys"
mount -t proc proc "$view/proc"
mkdir -p "$view/run" "$view/tmp"
chmod 1777 "$view/tmp"
# Names as here: Gloo asks for the address of the machine's own.
for file in hosts hostname resolv.conf; do
  [[ ! -r /etc/$file ]] || { rm -f "$view/etc/$file"; cat "/etc/$file" > "$view/etc/$file"; }
done
while [[ $1 != -- ]]; do
  mkdir -p "$view$1"
  mount --rbind "$1" "$view$1"
  shift
done
shift
folder=$1
shift
trap - ERR

# The first process of a namespace is sent no signal that it does not handle; the command is.
chroot "$view" /bin/bash -c 'cd "$0" && exec "$@"' "$folder" "$@" <&0 &
command=$!
# Whatever the command leaves running ends with this process.
trap 'kill -TERM "$command" 2> /dev/null' TERM INT HUP
while :; do
  status=0
  wait "$command" || status=$?
  kill -0 "$command" 2> /dev/null || break
done
exit "$status"
