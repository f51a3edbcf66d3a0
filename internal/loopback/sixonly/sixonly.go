// Package sixonly is for tests of hosts that have IPv6 alone.
package sixonly

import "golang.org/x/sys/unix"

// Here turns the loopback interface on and takes its address of IPv4 away: in the network
// namespace of this process, which must be its own.
func Here() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_UP | unix.IFF_LOOPBACK)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r); err != nil {
		return err
	}
	if err := r.SetInet4Addr(make([]byte, 4)); err != nil {
		return err
	}
	return unix.IoctlIfreq(fd, unix.SIOCSIFADDR, r)
}
