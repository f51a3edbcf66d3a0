package framework

import (
	"fmt"
	"os"
	"syscall"
)

// Dup returns a share of the same allocation that the caller owns. An implementation
// uses it to keep what it was lent: arguments are valid only for the duration of the
// call.
func (s Share) Dup() (Share, error) {
	d := Share{Kind: s.Kind}
	if s.Blob != nil {
		d.Blob = append([]byte{}, s.Blob...)
	}
	if s.FD == nil {
		return d, nil
	}
	// Through SyscallConn, so that a concurrent Close cannot make this duplicate
	// whatever the number was given to next.
	raw, err := s.FD.SyscallConn()
	if err != nil {
		return Share{}, fmt.Errorf("%w: duplicate a %s share: %w", ErrClosed, s.Kind, err)
	}
	var number uintptr
	var errno syscall.Errno
	err = raw.Control(func(fd uintptr) {
		number, _, errno = syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_DUPFD_CLOEXEC, 0)
	})
	if err != nil {
		return Share{}, fmt.Errorf("%w: duplicate a %s share: %w", ErrClosed, s.Kind, err)
	}
	if errno != 0 {
		return Share{}, fmt.Errorf("%w: duplicate a %s share: %w", ErrUnavailable, s.Kind, errno)
	}
	d.FD = os.NewFile(number, s.FD.Name())
	return d, nil
}

// DupShares duplicates all shares, or none.
func DupShares(shares []Share) ([]Share, error) {
	if shares == nil {
		return nil, nil
	}
	copies := make([]Share, 0, len(shares))
	for _, s := range shares {
		d, err := s.Dup()
		if err != nil {
			_ = Parcel{Shares: copies}.Close()
			return nil, err
		}
		copies = append(copies, d)
	}
	return copies, nil
}

// Dup returns a parcel with the same content that the caller owns.
func (p Parcel) Dup() (Parcel, error) {
	shares, err := DupShares(p.Shares)
	if err != nil {
		return Parcel{}, err
	}
	return Parcel{Data: append([]byte(nil), p.Data...), Shares: shares}, nil
}
