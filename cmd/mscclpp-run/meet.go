package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/launch"
)

// meet prepares the rendezvous of a job on one host: a listener, which rank 0
// inherits so that its port is never free in between, and an id that leads there
// and carries the secret. Ranks of several hosts meet at MASTER_ADDR.
func meet(j *launch.Job, family string) error {
	if j.Place.Nodes > 1 {
		return nil
	}
	loopback := "127.0.0.1:0"
	if bootstrap.Family(family) == bootstrap.IPv6 {
		loopback = "[::1]:0"
	}
	l, id, err := bootstrap.Listen(context.Background(), loopback)
	if err != nil {
		return fmt.Errorf("rendezvous: %w", err)
	}
	defer l.Close()
	if j.Listener, err = l.File(); err != nil {
		return fmt.Errorf("rendezvous: %w", err)
	}
	j.UniqueID = id.String()
	return nil
}

// freePort finds a port for the program's own use. Nothing keeps it free until the
// program takes it; frameworks that read MASTER_PORT have no better way.
func freePort() (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, os.NewSyscallError("bind", err)
	}
	addr, err := unix.Getsockname(fd)
	if err != nil {
		return 0, os.NewSyscallError("getsockname", err)
	}
	return addr.(*unix.SockaddrInet4).Port, nil
}

// jobName is the same on all hosts of a job: ranks of another job that meet at the
// same place by mistake are refused.
func jobName(e launch.Engine) string {
	if name := os.Getenv(bootstrap.EnvJob); name != "" {
		return name
	}
	return "job@" + net.JoinHostPort(e.MasterAddr, strconv.Itoa(e.MasterPort))
}
