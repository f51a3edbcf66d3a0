package setup

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/observe"
	"github.com/mscclpp-go/mscclpp/internal/ownfile"
	"github.com/mscclpp-go/mscclpp/internal/traces"
)

// observe lets others see the rank. A job goes on without that.
func (j *Job) observe(p *Plan, boot *bootstrap.Config) {
	if !p.Config.Observe.Enabled {
		return
	}
	local, err := strconv.Atoi(p.Getenv("LOCAL_RANK"))
	if err != nil {
		local = -1
	}
	name, id := jobName(p.Getenv, boot.ID, p.Place != nil)
	host := boot.HostID
	if host == "" {
		if id, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
			host = strings.TrimSpace(string(id))
		}
	}
	j.Observer, err = observe.Open(observe.Facts{
		Job: name, Rank: boot.Rank, Size: boot.Size, Local: local, HostID: host, Getenv: p.Getenv, Graphs: int(p.Config.Observe.Graphs),
		On: p.Config.Observe.Trace != "" || p.Config.Observe.Report,
	})
	if err != nil {
		p.Log.Warn("the rank cannot be observed", "error", err)
	}
	j.flight = p.Config.Observe.Flight
	j.recorder = newRecorder(p.Config.Observe, j.Observer, placeInJob{name, id, boot.Rank, boot.Size}, p.Log)
	j.Observer.Life(observe.Join|observe.Begin, framework.NoPeer)
}

// jobName is the name of a job, the same on all ranks. That of a job which the program makes has an id, since the variables describe the job in
// which it is, if any.
func jobName(getenv func(string) string, id bootstrap.UniqueID, made bool) (name, own string) {
	short := ""
	if id != (bootstrap.UniqueID{}) {
		job := id.Job()
		short = hex.EncodeToString(job[:4])
	}
	name = getenv(bootstrap.EnvJob)
	if addr := getenv(bootstrap.EnvAddr); name == "" && addr != "" {
		name = strings.TrimSuffix(addr+"-"+getenv(bootstrap.EnvPort), "-")
	}
	switch {
	case made:
		return strings.TrimPrefix(name+"-"+short, "-"), short
	case name == "" && short != "":
		return short, ""
	case name == "":
		return fmt.Sprintf("pid-%d", os.Getpid()), "" // a job of one process
	}
	return name, ""
}

// region is the variable by which plugins write into the rank's memory.
func (j *Job) region() []string {
	if j.Observer == nil {
		return nil
	}
	return []string{observe.EnvRegion + "=" + j.Observer.Region()}
}

// seen says that the rank has found the others, has its clock kept in step with theirs, and notes the failure of the
// job. It is collective over several hosts.
func (j *Job) seen(ctx context.Context, where framework.Device) error {
	j.Observer.Life(observe.Join|observe.End, framework.NoPeer)
	j.Observer.SetDevice(where.String())
	j.Observer.Running()
	j.Observer.OnDump(j.World.Dump)
	j.recorder.meet(j.Boot)
	life, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	j.watched = func() { stop(); <-done }
	go func() {
		defer close(done)
		select {
		case <-j.World.Done():
			j.Observer.Fail(j.World.Err())
		case <-life.Done():
		}
	}()
	if len(j.Boot.HostRanks()) == j.Boot.Size() {
		return nil
	}
	first := binary.LittleEndian.AppendUint32(nil, uint32(slices.Min(j.Boot.HostRanks())))
	all, err := j.World.AllGather(ctx, first)
	if err != nil {
		return fmt.Errorf("first ranks of hosts: %w", err)
	}
	var hosts []int
	for r, b := range all {
		if len(b) == 4 && int(binary.LittleEndian.Uint32(b)) == r {
			hosts = append(hosts, r)
		}
	}
	j.Observer.Align(life, j.Boot, hosts)
	return nil
}

// fly writes what the rank did last, if the job has failed and no launcher on this host does so.
func (j *Job) fly() {
	own := j.Observer.Own()
	if own == nil || j.flight == "none" || j.Boot == nil || j.Boot.Err() == nil {
		return
	}
	j.Observer.Fail(j.Boot.Err())
	t := traces.Newest("", own)
	if len(t.Ranks) == 0 || len(t.Ranks[0].Calls) == 0 {
		return // the error says all
	}
	base, err := j.flight, error(nil)
	if base == "" {
		base, err = ownfile.Cache("flight")
	}
	dir := ""
	if err == nil {
		dir, err = t.WriteFlightPart(base, j.Boot.Rank())
	}
	if err != nil {
		j.log.Warn("the last calls of this rank were not written", "error", err)
		return
	}
	j.log.Warn("the last calls of this rank are in " + dir)
}

// unseen ends that.
func (j *Job) unseen() error {
	j.Observer.OnDump(nil)
	if j.watched != nil {
		j.watched()
	}
	return j.Observer.Close()
}
