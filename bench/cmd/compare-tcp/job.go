package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/mscclpp-go/mscclpp/bench"
	"github.com/mscclpp-go/mscclpp/bench/compare"
	"github.com/mscclpp-go/mscclpp/internal/processors"
)

// job is one comparison.
type job struct {
	compare.Runner
	self, peer, mpirun, mpiPeer          string
	first, second, firstAddr, secondAddr string
	jobs                                 int // started so far
}

// setting is one table, with what is promised about it.
type setting struct {
	name    string
	what    string // put, pingpong or allreduce
	streams int
	spaces  bool    // over network namespaces
	alike   bool    // both sides have the congestion control that ours has within a host
	most    float64 // our time over theirs, for every size; 0: no promise
	sizes   []int
}

// alike is the congestion control of both sides where they have the same.
const alike = "reno"

var (
	putSizes    = []int{4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20}
	reduceSizes = []int{1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20}
)

// settings are compared, those that the machine can.
func (j *job) settings() []setting {
	var all []setting
	places := []bool{false}
	if j.first != "" {
		places = append(places, true)
	}
	for _, spaces := range places {
		where := map[bool]string{false: "loopback", true: "namespaces"}[spaces]
		for _, streams := range []int{1, 4} {
			s := setting{name: fmt.Sprintf("%s-put-%d", where, streams), what: "put", streams: streams, spaces: spaces, most: 1 / 0.9, sizes: putSizes}
			all = append(all, s)
			s.name, s.alike = s.name+"-alike", true
			all = append(all, s)
		}
		all = append(all, setting{name: where + "-latency", what: "pingpong", streams: 1, spaces: spaces, sizes: []int{8}})
	}
	if j.mpirun != "" {
		all = append(all, setting{name: "loopback-allreduce", what: "allreduce", streams: 4, most: 1, sizes: reduceSizes})
	}
	return all
}

// run returns how many promises are not kept.
func (j *job) run(ctx context.Context) (broken int, err error) {
	return j.Summarize(func(summary io.Writer) (broken int, err error) {
		heading(summary, j.Repetitions)
		for _, s := range j.settings() {
			lines, err := j.InTurn(ctx, s.name, func() []compare.Turn {
				j.jobs++
				return []compare.Turn{{Name: s.name, Ours: j.ourCommands(s), Theirs: [][]string{j.theirCommand(s)}}}
			}, nil)
			if err != nil {
				return 0, fmt.Errorf("%s: %w", s.name, err)
			}
			broken += section(summary, s, lines)
		}
		return broken, nil
	})
}

// total is how many bytes a point moves in one run: so many that the last sleep of who
// waits for the flush, of up to a millisecond, does not count.
const total = 96 << 20

func (s setting) points() []string {
	var all []string
	for _, b := range s.sizes {
		switch s.what {
		case "pingpong":
			all = append(all, point{b, 2000}.String())
		case "put":
			all = append(all, point{b, max(8, total/b)}.String())
		default:
			p := bench.DefaultPlan(int64(b))
			all = append(all, fmt.Sprintf("%d:%d:%d", b, p.Iterations, p.Calls))
		}
	}
	return all
}

// ourCommands are those of two hosts with one rank each.
func (j *job) ourCommands(s setting) [][]string {
	addr, port := "127.0.0.1", 29600+(os.Getpid()+j.jobs)%2000
	if s.spaces {
		addr = j.firstAddr
	}
	all := make([][]string, 2)
	for host := range all {
		var c []string
		if s.spaces {
			c = []string{"ip", "netns", "exec", []string{j.first, j.second}[host]}
		}
		if cores, err := processors.Allowed(); err == nil && s.what == "allreduce" && len(cores) > 1 {
			// mpirun binds two ranks to a core each, and two hosts share none.
			c = append(c, "taskset", "-c", strconv.Itoa(cores[host]))
		}
		c = append(c, "env", fmt.Sprintf("MSCCLPP_BOOTSTRAP__HOST_ID=host-%d", host), fmt.Sprintf("MSCCLPP_TRANSPORT__TCP__STREAMS=%d", s.streams))
		if s.alike {
			c = append(c, "MSCCLPP_TRANSPORT__TCP__LOCAL_CONGESTION="+alike)
		}
		c = append(c, j.Launcher, "-N", "2", "--node-rank", strconv.Itoa(host), "--master-addr", addr, "--master-port", strconv.Itoa(port),
			"--transports", "tcp", "-n", "1")
		if s.what == "allreduce" {
			first, last := s.sizes[0], s.sizes[len(s.sizes)-1]
			c = append(c, "bench", "allreduce", "--bytes", fmt.Sprintf("%d:%d", first, last), "--factor", "4", "--check", "--format", "json")
		} else {
			c = append(append(c, j.self, s.what), s.points()...)
		}
		all[host] = c
	}
	return all
}

func (j *job) theirCommand(s setting) []string {
	if s.what == "allreduce" {
		c := []string{j.mpirun, "-n", "2", "--oversubscribe", "--mca", "btl", "tcp,self", "--mca", "pml", "ob1", "--mca", "btl_tcp_if_include", "lo"}
		if os.Geteuid() == 0 {
			c = append(c, "--allow-run-as-root")
		}
		return append(append(c, j.mpiPeer, "allreduce"), s.points()...)
	}
	c := []string{j.peer}
	if s.spaces {
		c = append(c, "-at", j.secondAddr, "-from", "/run/netns/"+j.first, "-to", "/run/netns/"+j.second)
	}
	if s.alike {
		c = append(c, "-congestion", alike)
	}
	c = append(c, s.what)
	if s.what == "put" {
		c = append(c, strconv.Itoa(s.streams))
	}
	return append(c, s.points()...)
}
