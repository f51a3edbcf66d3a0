package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/internal/loopback"
	"github.com/mscclpp-go/mscclpp/launch"
)

// meet prepares the rendezvous of a job on one host: a listener, which rank 0
// inherits so that its port is never free in between, and an id that leads there
// and carries the secret. Ranks of several hosts meet at MASTER_ADDR.
func meet(j *launch.Job, family string) error {
	if j.Place.Nodes > 1 {
		return nil
	}
	l, id, err := bootstrap.Listen(context.Background(), loopback.Any(bootstrap.Family(family) == bootstrap.IPv6))
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

// jobName is the same on all hosts of a job: ranks of another job that meet at the
// same place by mistake are refused.
func jobName(e launch.Engine) string {
	if name := os.Getenv(bootstrap.EnvJob); name != "" {
		return name
	}
	return "job@" + net.JoinHostPort(e.MasterAddr, strconv.Itoa(e.MasterPort))
}
