# shellcheck shell=dash
# Part of inside.sh: gives the guest's emulated NICs to a driver for programs in user space, and reserves huge pages for those.

# drive PCI-ADDRESS: PCI_DRIVER instead of the kernel's own driver
drive() {
  device=/sys/bus/pci/devices/$1
  [ -d "$device" ] || { echo "there is no PCI device $1"; return 1; }
  echo "$PCI_DRIVER" > "$device/driver_override"
  [ ! -e "$device/driver" ] || echo "$1" > "$device/driver/unbind"
  echo "$1" > /sys/bus/pci/drivers_probe
  [ "$(basename "$(readlink "$device/driver")")" = "$PCI_DRIVER" ] || { echo "$PCI_DRIVER does not take $1"; return 1; }
}

modules=$PCI_DRIVER
[ "$PCI_DRIVER" != vfio-pci ] || modules="vfio_iommu_type1 vfio-pci"
# shellcheck disable=SC2086
prepare modprobe -a $modules
for address in $PCI_ADDRESSES; do
  prepare drive "$address"
done
mkdir -p /dev/hugepages
prepare mount -t hugetlbfs hugetlbfs /dev/hugepages
echo "$HUGE_PAGES" > /proc/sys/vm/nr_hugepages
reserved=$(cat /proc/sys/vm/nr_hugepages)
[ "$reserved" -eq "$HUGE_PAGES" ] || end "failure only $reserved of $HUGE_PAGES huge pages could be reserved: give --memory more"
