package launch

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/internal/supervise"
)

// Mark is the variable that marks the processes of one launcher.
const Mark = supervise.Mark

// RankEnv returns the environment of one local rank: that of all ranks, then the
// variables that torchrun made customary, then our own.
func (j *Job) RankEnv(local int) []string {
	return overlay(j.Env, j.OwnEnv(local), bootstrap.EnvListenFD, bootstrap.EnvKeeper, bootstrap.EnvUniqueID)
}

// OwnEnv returns the variables of one local rank that differ from the launcher's.
func (j *Job) OwnEnv(local int) []string {
	p := j.Place
	own := []string{
		"RANK=" + strconv.Itoa(p.First+local),
		"WORLD_SIZE=" + strconv.Itoa(p.World),
		"LOCAL_RANK=" + strconv.Itoa(local),
		"LOCAL_WORLD_SIZE=" + strconv.Itoa(p.Local),
		"GROUP_RANK=" + strconv.Itoa(p.Node),
		"GROUP_WORLD_SIZE=" + strconv.Itoa(max(1, p.Nodes)),
	}
	if j.ID != "" {
		own = append(own, Mark+"="+j.ID)
	}
	if name := j.Place.Job; name != "" {
		own = append(own, bootstrap.EnvJob+"="+name)
	} else if j.ID != "" {
		own = append(own, bootstrap.EnvJob+"="+j.ID)
	}
	if p.MasterAddr != "" {
		own = append(own, "MASTER_ADDR="+p.MasterAddr)
	}
	if p.MasterPort != 0 {
		own = append(own, "MASTER_PORT="+strconv.Itoa(p.MasterPort))
	}
	if j.UniqueID != "" {
		own = append(own, bootstrap.EnvUniqueID+"="+j.UniqueID)
	}
	if j.Listener != nil && p.First+local == 0 {
		own = append(own, bootstrap.EnvListenFD+"=3", bootstrap.EnvKeeper+"="+strconv.Itoa(os.Getpid()))
	}
	return own
}

// overlay puts own on top of base. Base's values of those names, and of the ones in drop, are left
// out: an outer job's rendezvous must not leak into this one. Of a name that base has twice the
// last one counts, as in a shell; programs disagree about which one they would take.
func overlay(base, own []string, drop ...string) []string {
	last := make(map[string]int, len(base)+len(own))
	for _, name := range drop {
		last[name] = -1
	}
	all := append(slices.Clone(base), own...)
	for i, e := range all {
		name, _, _ := strings.Cut(e, "=")
		if at, known := last[name]; !known || at >= 0 || i >= len(base) {
			last[name] = i
		}
	}
	out := make([]string, 0, len(all))
	for i, e := range all {
		if name, _, _ := strings.Cut(e, "="); last[name] == i {
			out = append(out, e)
		}
	}
	return out
}
