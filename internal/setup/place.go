package setup

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/config"
	"github.com/mscclpp-go/mscclpp/internal/loopback"
	"github.com/mscclpp-go/mscclpp/launch"
)

// Bootstrap is this rank's place in the job according to the environment,
// with the configuration's settings of how to get there.
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
	settle(&b, cfg, log)
	return b, nil
}

// settle adds the configuration's settings to a place.
func settle(b *bootstrap.Config, cfg *config.Config, log *slog.Logger) {
	b.Interface = cfg.Bootstrap.Interface
	b.Family = bootstrap.Family(cfg.Bootstrap.Family)
	b.HostID = cfg.Bootstrap.HostID
	b.Insecure = cfg.Bootstrap.Insecure
	b.Timeout = time.Duration(cfg.Bootstrap.Timeout)
	b.Heartbeat = time.Duration(cfg.Bootstrap.Heartbeat)
	b.Log = log
}

// place finds the rank's place in the job as mscclpp-run does: the engine that started the
// process comes first. RANK and WORLD_SIZE count where they agree with it; variables that an
// outer launcher left would make each rank a job of its own. Without an engine and without
// variables the job is this process.
func place(ctx context.Context, getenv func(string) string) (bootstrap.Config, error) {
	getenv = besideTorch(getenv)
	e, err := launch.Detect(getenv)
	if err == nil {
		err = contradiction(e, getenv)
	}
	if err != nil {
		return bootstrap.Config{}, err
	}
	identified := getenv(bootstrap.EnvUniqueID) != ""
	switch {
	case getenv(bootstrap.EnvRank) != "" && getenv(bootstrap.EnvSize) != "":
		return bootstrap.FromEnv(meetingPoint(e, getenv))
	case e.Role == launch.RoleAgent && e.Nodes != 1:
		return bootstrap.Config{}, fmt.Errorf("%w: %s made one process for each host: start the program with mscclpp-run there", framework.ErrInvalid, e.Name)
	case e.Role == launch.RoleRank && (e.World > 1 || identified):
		if e.MasterAddr == "" && !identified {
			return bootstrap.Config{}, fmt.Errorf("%w: %s does not say which host has rank 0: set %s for all ranks, as mpirun -x %s=HOST does", framework.ErrInvalid, e.Name, bootstrap.EnvAddr, bootstrap.EnvAddr)
		}
		return bootstrap.FromEnv(placeOf(e, getenv))
	case identified:
		return bootstrap.Config{}, fmt.Errorf("%w: %s is set, and %s and %s are not: expected all three", framework.ErrInvalid, bootstrap.EnvUniqueID, bootstrap.EnvRank, bootstrap.EnvSize)
	}
	return alone(ctx)
}

// contradiction refuses RANK and WORLD_SIZE that do not fit what the engine says. An engine
// whose job is this process alone may run a script that starts ranks by hand, and an agent
// may start several on its host. Half of the pair counts only where it agrees.
func contradiction(e launch.Engine, getenv func(string) string) error {
	rank, size := getenv(bootstrap.EnvRank), getenv(bootstrap.EnvSize)
	given := strings.TrimSpace(named(bootstrap.EnvRank, rank) + " " + named(bootstrap.EnvSize, size))
	const expected = "expected the same of both: unset those that another launcher has left, or start the program with mscclpp-run, which goes by the engine"
	switch {
	case e.Role == launch.RoleRank && e.World > 1 && (differs(rank, e.Rank) || differs(size, e.World)):
		return fmt.Errorf("%w: %s, and %s made this process rank %d of %d: %s", framework.ErrInvalid, given, e.Name, e.Rank, e.World, expected)
	case e.Role == launch.RoleRank && !differs(rank, e.Rank) && !differs(size, e.World):
	case (rank == "") != (size == ""):
		missing := bootstrap.EnvRank
		if size == "" {
			missing = bootstrap.EnvSize
		}
		return fmt.Errorf("%w: %s is set, and %s is not: expected both or neither", framework.ErrInvalid, given, missing)
	case e.Role == launch.RoleAgent && size != "":
		if n, err := strconv.Atoi(size); err == nil && n < e.Nodes {
			return fmt.Errorf("%w: %s, and %s made a process on each of %d hosts: %s", framework.ErrInvalid, given, e.Name, e.Nodes, expected)
		}
	}
	return nil
}

// named is a variable as messages show it, or nothing.
func named(name, value string) string {
	if value == "" {
		return ""
	}
	return name + "=" + value
}

// differs reports whether a variable is set to something other than n.
func differs(text string, n int) bool {
	v, err := strconv.Atoi(text)
	return text != "" && (err != nil || v != n)
}

// meetingPoint is the environment, with the meeting point of the engine where it has none.
func meetingPoint(e launch.Engine, getenv func(string) string) func(string) string {
	if e.Role != launch.RoleRank {
		return getenv
	}
	made := map[string]string{bootstrap.EnvAddr: e.MasterAddr}
	if e.MasterPort != 0 {
		made[bootstrap.EnvPort] = strconv.Itoa(e.MasterPort)
	}
	return func(name string) string {
		if v := getenv(name); v != "" {
			return v
		}
		return made[name]
	}
}

// placeOf is the environment with the place that the engine gave to this process.
func placeOf(e launch.Engine, getenv func(string) string) func(string) string {
	made := map[string]string{bootstrap.EnvRank: strconv.Itoa(e.Rank), bootstrap.EnvSize: strconv.Itoa(e.World), bootstrap.EnvAddr: e.MasterAddr}
	if e.MasterPort != 0 {
		made[bootstrap.EnvPort] = strconv.Itoa(e.MasterPort)
	}
	return func(name string) string {
		if v := made[name]; v != "" {
			return v
		}
		return getenv(name)
	}
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

// alone is the place in a job of one rank. Its id is random, so no other rank can join it.
func alone(ctx context.Context) (bootstrap.Config, error) {
	l, id, err := bootstrap.Listen(ctx, loopback.Any(false))
	if err != nil {
		return bootstrap.Config{}, err
	}
	return bootstrap.Config{Size: 1, ID: id, Listener: l}, nil
}
