// Package sight has the verbs that show what the ranks of a job do, and looks at those that a launcher starts.
package sight

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/mscclpp-go/mscclpp/framework/observe"
	"github.com/mscclpp-go/mscclpp/internal/traces"
)

// JobStatus is the state of a job at one moment.
type JobStatus struct {
	Job    string            `json:"job"`
	Size   int               `json:"size"`
	Ranks  []RankStatus      `json:"ranks"` // of this host
	Open   []traces.OpenCall `json:"unmatched"`
	Behind []Behind          `json:"behind"`

	// While records are on, of the newest ones.
	Late    []traces.LateRank   `json:"late,omitempty"`
	Links   []traces.LinkTime   `json:"links,omitempty"`
	Kernels []traces.KernelTime `json:"kernels,omitempty"`
	Devices []traces.DeviceTime `json:"devices,omitempty"`
	story   *traces.Story
}

// RankStatus is the state of one rank.
type RankStatus struct {
	Rank    int          `json:"rank"`
	Host    string       `json:"host"`
	PID     int          `json:"pid"`
	Device  string       `json:"device"`
	State   string       `json:"state"`
	Program string       `json:"program"`
	Records bool         `json:"records"`
	Failure string       `json:"failure,omitempty"`
	Silent  int64        `json:"silent_ns"`    // since the rank's own look at itself
	Memory  uint64       `json:"memory_bytes"` // of the process, that is resident; 0: it is gone
	Comms   []CommStatus `json:"communicators"`
	Dump    string       `json:"dump,omitempty"`
}

// CommStatus is where a rank is in one communicator.
type CommStatus struct {
	Name      string  `json:"name"`
	Call      uint64  `json:"call"` // begun last
	Busy      bool    `json:"busy"`
	Kind      string  `json:"collective"`
	Algorithm string  `json:"algorithm"`
	Bytes     uint64  `json:"bytes"`
	Age       int64   `json:"age_ns"` // of the call in progress, to a tenth of a second
	Calls     float64 `json:"calls_per_second"`
	Rate      float64 `json:"bytes_per_second"`
}

// Behind is how often a rank was behind the others when they were looked at.
type Behind struct {
	Rank  int `json:"rank"`
	Times int `json:"times"`
	Looks int `json:"looks"` // at which any rank was
}

// mostBehind is how many ranks that are behind are printed, and fewLooks how many looks say nothing.
const (
	mostBehind = 3
	fewLooks   = 8
)

// standsOut reports whether a rank is usually behind, and much more often than another one: on a busy machine each is now and then.
func (b *Behind) standsOut(all []Behind, ranks int) bool {
	least := b.Times
	for i := range all {
		least = min(least, all[i].Times)
	}
	if len(all) < ranks { // the others never were
		least = 0
	}
	return b.Looks >= fewLooks && 2*b.Times > b.Looks && b.Times >= 2*least
}

func (b *Behind) text() string {
	return fmt.Sprintf("rank %d was behind in %d of %d looks at which any rank was", b.Rank, b.Times, b.Looks)
}

// looking is how a job is looked at: so many times, so far apart.
type looking struct {
	looks int
	apart time.Duration
}

var aMoment = looking{looks: 100, apart: 2 * time.Millisecond}

// lookAtAll looks at all jobs of this user on this host, or at one of them.
func lookAtAll(job string, how looking) ([]JobStatus, error) {
	memories, err := observe.Find(false)
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, m := range memories {
			m.Close()
		}
	}()
	views := map[string][]*observe.View{}
	for _, m := range memories {
		for _, v := range m.Views() {
			if i := v.Info(); i.PID != 0 && (job == "" || i.Job == job || fmt.Sprint(i.PID) == job) {
				views[i.Job] = append(views[i.Job], v)
			}
		}
	}
	var all []JobStatus
	for name, list := range views {
		all = append(all, look(name, list, how))
	}
	newest(all, memories)
	slices.SortFunc(all, func(a, b JobStatus) int { return cmp.Compare(a.Job, b.Job) })
	return all, nil
}

// newest adds what the newest records of jobs tell that write some.
func newest(all []JobStatus, memories []*observe.Memory) {
	var c *traces.Collector
	for i := range all {
		s := &all[i]
		if !s.records() {
			continue
		}
		if c == nil {
			c = traces.NewCollector(memories...)
			c.Poll()
		}
		s.story = c.Tell(s.Job)
		s.Late, s.Links, s.Kernels, s.Devices = s.story.Late, s.story.Links, s.story.Kernels, s.story.Devices
	}
}

func (s *JobStatus) records() bool {
	return slices.ContainsFunc(s.Ranks, func(r RankStatus) bool { return r.Records })
}

// look looks at one job.
func look(name string, views []*observe.View, how looking) JobStatus {
	first := make([][]observe.State, len(views))
	began := time.Now()
	behind := map[int]*Behind{}
	looks := 0
	for n := range how.looks {
		states := make([][]observe.State, len(views))
		for i, v := range views {
			states[i] = v.States()
		}
		if n == 0 {
			first = states
		} else {
			time.Sleep(how.apart)
		}
		if late := lateIn(states); len(late) > 0 {
			looks++
			for _, i := range late {
				rank := views[i].Info().Rank
				if behind[rank] == nil {
					behind[rank] = &Behind{Rank: rank}
				}
				behind[rank].Times++
			}
		}
	}
	took := time.Since(began).Seconds()
	s := JobStatus{Job: name, Open: []traces.OpenCall{}, Behind: []Behind{}}
	t := &traces.Trace{Job: name}
	for i, v := range views {
		info, now := v.Info(), v.States()
		s.Size = info.Size
		s.Ranks = append(s.Ranks, rankStatus(&info, first[i], now, took))
		t.Ranks = append(t.Ranks, traces.Standing(info, now))
	}
	slices.SortFunc(s.Ranks, func(a, b RankStatus) int { return cmp.Compare(a.Rank, b.Rank) })
	s.Open = t.Tell().Open
	for _, b := range behind {
		b.Looks = looks
		s.Behind = append(s.Behind, *b)
	}
	slices.SortFunc(s.Behind, func(a, b Behind) int { return cmp.Or(cmp.Compare(b.Times, a.Times), cmp.Compare(a.Rank, b.Rank)) })
	return s
}

// lateIn lists, by index, the ranks that have begun fewer calls of a communicator than others of it.
func lateIn(states [][]observe.State) (late []int) {
	most := map[string]uint64{}
	for _, list := range states {
		for _, s := range list {
			if s.Open {
				most[s.Name] = max(most[s.Name], s.Begun)
			}
		}
	}
	for i, list := range states {
		if slices.ContainsFunc(list, func(s observe.State) bool { return s.Open && s.Begun < most[s.Name] }) {
			late = append(late, i)
		}
	}
	return late
}

// residentOf is the memory that a process has, as the kernel counts it.
func residentOf(pid int) uint64 {
	b, err := os.ReadFile(observe.Process(fmt.Sprintf("/proc/%d", pid)) + "/statm")
	if err != nil {
		return 0
	}
	var all, resident uint64
	if _, err := fmt.Sscan(string(b), &all, &resident); err != nil {
		return 0
	}
	return resident * uint64(os.Getpagesize())
}

func rankStatus(info *observe.Info, first, now []observe.State, seconds float64) RankStatus {
	r := RankStatus{
		Rank: info.Rank, Host: info.Host, PID: info.PID, Device: info.Device, State: observe.StateName(info.State), Program: info.Program,
		Records: info.On, Failure: info.Failure, Silent: max(0, observe.Now()-info.Ticked), Comms: []CommStatus{}, Memory: residentOf(info.PID),
	}
	for _, s := range now {
		if !s.Open {
			continue
		}
		c := CommStatus{Name: s.Name, Call: s.Begun, Busy: s.Busy(), Algorithm: s.Algorithm, Bytes: s.Bytes}
		if s.Begun > 0 {
			c.Kind = s.Kind.String()
		}
		if s.Busy() && s.Since != 0 {
			c.Age = max(0, observe.Now()-s.Since)
		}
		for _, f := range first {
			if f.Board == s.Board && f.Turn == s.Turn && seconds > 0 {
				c.Calls, c.Rate = float64(s.Ended-f.Ended)/seconds, float64(s.Total-f.Total)/seconds
			}
		}
		r.Comms = append(r.Comms, c)
	}
	return r
}

// dumpLimit is how long a rank has to write its state.
const dumpLimit = 2 * time.Second

// dumpInto asks all ranks for their state. One that does not answer says so.
func dumpInto(ctx context.Context, all []JobStatus) error {
	memories, err := observe.Find(true)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, dumpLimit)
	defer cancel()
	for _, m := range memories {
		defer m.Close()
		for _, v := range m.Views() {
			info := v.Info()
			for i := range all {
				for k := range all[i].Ranks {
					r := &all[i].Ranks[k]
					if all[i].Job != info.Job || r.Rank != info.Rank || r.PID != info.PID {
						continue
					}
					if r.Dump, err = v.Dump(ctx); err != nil {
						r.Dump = err.Error() + "\n"
					}
				}
			}
		}
	}
	return nil
}

// Print writes the status for people.
func (s *JobStatus) Print(out io.Writer) {
	records := "records are off"
	if s.records() {
		records = "records are on"
	}
	fmt.Fprintf(out, "job %s: %s, %d of them here; %s\n", s.Job, traces.Counted(s.Size, "rank"), len(s.Ranks), records)
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "rank\thost\tpid\tdevice\tmemory\tstate\tcommunicator\tcall\twhat\tage\tcalls/s\tbytes/s")
	for _, r := range s.Ranks {
		who := fmt.Sprintf("%d\t%s\t%d\t%s\t%s\t%s", r.Rank, r.Host, r.PID, r.Device, traces.Size(r.Memory), r.State)
		if len(r.Comms) == 0 {
			fmt.Fprintf(w, "%s\t-\t-\t-\t-\t-\t-\n", who)
		}
		for _, c := range r.Comms {
			what, age := "outside of calls", "-"
			if c.Busy {
				what = strings.TrimSuffix(fmt.Sprintf("%s of %s by %s", c.Kind, traces.Size(c.Bytes), c.Algorithm), " by ")
			}
			if c.Age >= int64(50*time.Millisecond) { // less is not known
				age = time.Duration(c.Age).Round(100 * time.Millisecond).String()
			}
			fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%.0f\t%s\n", who, c.Name, c.Call, what, age, c.Calls, traces.Size(uint64(c.Rate)))
			who = "\t\t\t\t\t"
		}
	}
	_ = w.Flush() // the output remembers its errors
	for _, o := range s.Open {
		if len(o.Without) > 0 {
			fmt.Fprintf(out, "call %d of %s, %s of %s, was begun by %s; %s not begun it\n", o.Number, o.Comm, o.Kind, traces.Size(o.Bytes), traces.RankList(o.In), traces.Have(o.Without))
		}
	}
	for i, b := range s.Behind {
		if i < mostBehind && b.standsOut(s.Behind, len(s.Ranks)) {
			fmt.Fprintln(out, b.text())
		}
	}
	if s.story != nil {
		if line := s.story.Straggler(); line != "" {
			fmt.Fprintln(out, line)
		}
		s.story.PrintKernels(out)
		for _, line := range s.story.SlowLinks() {
			fmt.Fprintln(out, line)
		}
	}
	for _, r := range s.Ranks {
		fmt.Fprint(out, r.Dump)
	}
	for _, r := range s.Ranks {
		if r.Failure != "" {
			fmt.Fprintf(out, "rank %d failed: %s\n", r.Rank, r.Failure)
		}
	}
}
