package bootstrap

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/internal/loopback"
)

// Names of environment variables that FromEnv reads.
const (
	EnvRank       = "RANK"
	EnvSize       = "WORLD_SIZE"
	EnvUniqueID   = "MSCCLPP_UNIQUE_ID"   // text form
	EnvAddr       = "MASTER_ADDR"         // else: host of rank 0…
	EnvPort       = "MASTER_PORT"         // …and its port…
	EnvSecretFile = "MSCCLPP_SECRET_FILE" // …and a file with the shared secret
	EnvJob        = "MSCCLPP_JOB_ID"
	EnvListenFD   = "MSCCLPP_LISTEN_FD"     // for rank 0: number of the inherited listener
	EnvKeeper     = "MSCCLPP_LISTEN_KEEPER" // for rank 0: process that keeps a copy of it
	EnvHostID     = "MSCCLPP_HOSTID"
	EnvInterface  = "MSCCLPP_SOCKET_IFNAME"
	EnvFamily     = "MSCCLPP_SOCKET_FAMILY" // AF_INET or AF_INET6
)

// FromEnv reads a Config from environment variables, as mscclpp-run, torchrun and
// others set them; env is os.Getenv or a stand-in. If there is an inherited listener,
// FromEnv opens it and the Config owns it, so a second call in the same process fails.
func FromEnv(env func(string) string) (Config, error) {
	var c Config
	var err error
	if c.Rank, err = number(env, EnvRank); err != nil {
		return Config{}, err
	}
	if c.Size, err = number(env, EnvSize); err != nil {
		return Config{}, err
	}
	if text := env(EnvUniqueID); text != "" {
		if c.ID, err = ParseUniqueID(text); err != nil {
			return Config{}, fmt.Errorf("%s: %w", EnvUniqueID, err)
		}
	} else {
		host, port := env(EnvAddr), env(EnvPort)
		if host == "" || port == "" {
			return Config{}, fmt.Errorf("%w: environment: neither %s nor both %s and %s are set: start the program with mscclpp-run",
				framework.ErrInvalid, EnvUniqueID, EnvAddr, EnvPort)
		}
		if p, err := strconv.ParseUint(port, 10, 16); err != nil || p == 0 {
			return Config{}, fmt.Errorf("%w: %s=%q: expected a port, 1 to 65535", framework.ErrInvalid, EnvPort, port)
		}
		c.Addr = net.JoinHostPort(loopback.Unbracket(host), port)
		if file := env(EnvSecretFile); file != "" {
			if c.Secret, err = ReadSecret(file); err != nil {
				return Config{}, fmt.Errorf("%s: %w", EnvSecretFile, err)
			}
		}
	}
	c.Job, c.HostID, c.Interface = env(EnvJob), env(EnvHostID), env(EnvInterface)
	if c.Family, err = ParseFamily(env(EnvFamily)); err != nil {
		return Config{}, fmt.Errorf("%s: %w", EnvFamily, err)
	}
	if fd := env(EnvListenFD); fd != "" && c.Rank == 0 {
		if c.Listener, err = inherit(fd, c.ID.Addresses()); err != nil {
			return Config{}, err
		}
		// Behind a script, the next program of the script may still need the listener.
		c.kept = env(EnvKeeper) == strconv.Itoa(os.Getppid())
	}
	return c, nil
}

func number(env func(string) string, name string) (int, error) {
	n, err := strconv.Atoi(env(name))
	if errors.Is(err, strconv.ErrRange) && n > 0 {
		return 0, fmt.Errorf("%w: %s=%q is too large: expected a number below %d", framework.ErrInvalid, name, env(name), MaxRanks)
	}
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%w: %s=%q: expected a number", framework.ErrInvalid, name, env(name))
	}
	return n, nil
}

// maxSecretFile bounds what is read as a secret. A pipe is refused as well: it would be
// waited for without end, and gives its content to one rank alone.
const maxSecretFile = 1 << 20

// ReadSecret reads a secret that several hosts share: the content of a file, without
// trailing white space.
func ReadSecret(file string) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, fmt.Errorf("%w: secret file: %w", framework.ErrInvalid, err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxSecretFile {
		return nil, fmt.Errorf("%w: secret file %s: expected a regular file of at most %d bytes", framework.ErrInvalid, file, maxSecretFile)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return nil, fmt.Errorf("%w: secret file %s may be written by others (mode %v): expected 0600", framework.ErrInvalid, file, info.Mode().Perm())
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%w: secret file: %w", framework.ErrInvalid, err)
	}
	b = bytes.TrimRight(b, " \t\r\n")
	if len(b) < minSecret {
		return nil, fmt.Errorf("%w: secret file %s has %d bytes: expected at least %d", framework.ErrInvalid, file, len(b), minSecret)
	}
	return b, nil
}

// inherit opens the listener that the starting process left under a number. The
// number is closed. If it stands for something else by now, because this process
// took the listener before, that is left alone.
func inherit(text string, expected []netip.AddrPort) (net.Listener, error) {
	fd, err := strconv.Atoi(text)
	if err != nil || fd < 3 {
		return nil, fmt.Errorf("%w: %s=%q: expected the number of an inherited descriptor", framework.ErrInvalid, EnvListenFD, text)
	}
	port, err := listensAt(fd)
	if err == nil && len(expected) > 0 && port != int(expected[0].Port()) {
		err = fmt.Errorf("it listens at port %d", port)
	}
	if err != nil {
		at := "the listener"
		if len(expected) > 0 {
			at = "the listener at " + expected[0].String()
		}
		return nil, fmt.Errorf("%w: %s=%d: %w: expected %s that the launcher left for rank 0; a process takes it, and joins the launcher's job, once: split its communicator for more",
			framework.ErrInvalid, EnvListenFD, fd, err, at)
	}
	f := os.NewFile(uintptr(fd), "bootstrap listener")
	defer f.Close() // FileListener duplicates it
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("%w: %s=%d is not a listener: %w", framework.ErrInvalid, EnvListenFD, fd, err)
	}
	return l, nil
}

// listensAt returns the port at which a descriptor listens.
func listensAt(fd int) (int, error) {
	listens, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	if err != nil {
		return 0, fmt.Errorf("it is no socket: %w", err)
	}
	at, err := unix.Getsockname(fd)
	switch {
	case err != nil:
		return 0, fmt.Errorf("it has no address: %w", err)
	case listens == 0:
		return 0, errors.New("it is a socket that does not listen")
	}
	switch at := at.(type) {
	case *unix.SockaddrInet4:
		return at.Port, nil
	case *unix.SockaddrInet6:
		return at.Port, nil
	}
	return 0, errors.New("it does not listen on tcp: expected tcp")
}
