// Package usersecret keeps a secret for each user of a host, which the processes of that
// user share and others cannot read.
package usersecret

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/internal/filelimit"
)

// size is the length of a secret.
const size = 32

const name = "mscclpp-secret"

// Read returns the secret of this user, and the file that has it. The first process makes
// it. The folder is /run/user/UID, which the system makes for the user, or else
// /tmp/mscclpp-UID. No variable of the environment changes that: processes that share a
// secret may have different ones.
func Read() (secret []byte, file string, err error) {
	uid := os.Geteuid()
	if secret, err := At("/run/user/"+strconv.Itoa(uid), uid); err == nil {
		return secret, "/run/user/" + strconv.Itoa(uid) + "/" + name, nil
	}
	dir := "/tmp/mscclpp-" + strconv.Itoa(uid)
	if err := unix.Mkdir(dir, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, "", fmt.Errorf("folder %s: %w", dir, err)
	}
	secret, err = At(dir, uid)
	return secret, dir + "/" + name, err
}

// At returns the secret in a folder, which has to belong to the user alone. Links are not followed:
// their maker would choose what is read.
func At(dir string, uid int) ([]byte, error) {
	at, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("folder %s: %w", dir, err)
	}
	defer unix.Close(at)
	if err := private(at, unix.S_IFDIR, uid); err != nil {
		return nil, fmt.Errorf("folder %s: %w", dir, err)
	}
	secret, err := read(at, uid)
	if errors.Is(err, unix.ENOENT) {
		if err = create(at); err == nil {
			secret, err = read(at, uid)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("file %s/%s: %w", dir, name, err)
	}
	return secret, nil
}

// private checks on the opened descriptor that it is of a kind, and of this user alone.
func private(fd int, kind uint32, uid int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	switch {
	case st.Mode&unix.S_IFMT != kind:
		return errors.New("it is neither a folder nor a regular file, as expected")
	case int(st.Uid) != uid:
		return fmt.Errorf("it belongs to user %d: expected user %d", st.Uid, uid)
	case st.Mode&0o077 != 0:
		return fmt.Errorf("its mode is %#o: expected that others have no access", st.Mode&0o777)
	}
	return nil
}

func read(dir, uid int) ([]byte, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if err := private(fd, unix.S_IFREG, uid); err != nil {
		return nil, err
	}
	b := make([]byte, size+1)
	n, err := unix.Read(fd, b)
	if err != nil {
		return nil, err
	}
	if n != size {
		return nil, fmt.Errorf("it has %d bytes: expected %d: remove it", n, size)
	}
	return b[:n], nil
}

// create makes the secret under another name and links it: it appears whole, and of
// several processes that make one the first counts.
func create(dir int) error {
	if err := filelimit.Check(size); err != nil {
		return err
	}
	b := make([]byte, size+8)
	_, _ = rand.Read(b) // never fails
	made := name + "." + hex.EncodeToString(b[size:])
	fd, err := unix.Openat(dir, made, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Unlinkat(dir, made, 0) }()
	n, err := unix.Write(fd, b[:size])
	if err = errors.Join(err, unix.Close(fd)); err != nil {
		return err
	}
	if n != size {
		return unix.ENOSPC
	}
	if err := unix.Linkat(dir, made, dir, name, 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil
}
