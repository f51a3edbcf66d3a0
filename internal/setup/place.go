package setup

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/config"
	"github.com/mscclpp-go/mscclpp/launch"
)

// Bootstrap is what the environment says of this rank's place in the job,
// with the configuration's say in how to get there.
func Bootstrap(ctx context.Context, cfg *config.Config, getenv func(string) string, log *slog.Logger) (bootstrap.Config, error) {
	b, err := place(ctx, getenv)
	if err != nil {
		return b, err
	}
	if cfg.Bootstrap.SecretFile != "" && len(b.Secret) == 0 {
		if b.Secret, err = bootstrap.ReadSecret(cfg.Bootstrap.SecretFile); err != nil {
			if b.Listener != nil {
				b.Listener.Close()
			}
			return b, err
		}
	}
	b.Interface = cfg.Bootstrap.Interface
	b.Family = bootstrap.Family(cfg.Bootstrap.Family)
	b.HostID = cfg.Bootstrap.HostID
	b.Insecure = cfg.Bootstrap.Insecure
	b.Timeout = time.Duration(cfg.Bootstrap.Timeout)
	b.Heartbeat = time.Duration(cfg.Bootstrap.Heartbeat)
	b.Log = log
	return b, nil
}

// place reads the rendezvous that mscclpp-run and torchrun hand over, or makes one
// from the variables of another engine. Without either the job is this process.
func place(ctx context.Context, getenv func(string) string) (bootstrap.Config, error) {
	for _, name := range []string{bootstrap.EnvRank, bootstrap.EnvSize, bootstrap.EnvUniqueID} {
		if getenv(name) != "" {
			return bootstrap.FromEnv(besideTorch(getenv))
		}
	}
	e, err := launch.Detect(getenv)
	switch {
	case err != nil:
		return bootstrap.Config{}, err
	case e.Role == launch.RoleAgent && e.Nodes != 1:
		return bootstrap.Config{}, fmt.Errorf("%w: %s made one process for each host: start the program with mscclpp-run there", framework.ErrInvalid, e.Name)
	case e.Role != launch.RoleRank || e.World == 1:
		return alone(ctx)
	}
	if e.MasterAddr == "" && getenv(bootstrap.EnvAddr) == "" {
		return bootstrap.Config{}, fmt.Errorf("%w: %s does not say which host has rank 0: set %s for all ranks, as mpirun -x %s=HOST does", framework.ErrInvalid, e.Name, bootstrap.EnvAddr, bootstrap.EnvAddr)
	}
	made := map[string]string{
		bootstrap.EnvRank: strconv.Itoa(e.Rank),
		bootstrap.EnvSize: strconv.Itoa(e.World),
		bootstrap.EnvAddr: e.MasterAddr,
	}
	if e.MasterPort != 0 {
		made[bootstrap.EnvPort] = strconv.Itoa(e.MasterPort)
	}
	return bootstrap.FromEnv(func(name string) string {
		if v := made[name]; v != "" {
			return v
		}
		return getenv(name)
	})
}

// besideTorch is the environment of a rank with another port where torchrun made it:
// at MASTER_PORT listens the store of torchrun or of PyTorch. All ranks derive the same
// one, and another after a restart.
func besideTorch(getenv func(string) string) func(string) string {
	run := getenv("TORCHELASTIC_RUN_ID")
	if run == "" || getenv(launch.Mark) != "" || getenv(bootstrap.EnvPort) == "" {
		return getenv
	}
	port := launch.PortOf(run, " ", getenv("TORCHELASTIC_RESTART_COUNT"), " ", getenv(bootstrap.EnvPort))
	return func(name string) string {
		if name == bootstrap.EnvPort {
			return strconv.Itoa(port)
		}
		return getenv(name)
	}
}

// alone is the place in a job of one rank. Its id is random, so nobody can join it.
func alone(ctx context.Context) (bootstrap.Config, error) {
	l, id, err := bootstrap.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		return bootstrap.Config{}, err
	}
	return bootstrap.Config{Size: 1, ID: id, Listener: l}, nil
}
