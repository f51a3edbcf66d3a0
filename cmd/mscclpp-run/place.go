package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/verb"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/internal/loopback"
	"github.com/mscclpp-go/mscclpp/launch"
)

// defaultPort is where the ranks of several hosts meet by default;
// users of torchrun know it.
const defaultPort = 29400

// place works out which ranks to start here. nil means that this process is itself
// a rank, made by an engine.
func (a *app) place() (*launch.Place, error) {
	o, e := &a.opts, a.engine
	local, err := a.local()
	if err != nil {
		return nil, err
	}
	if e.Role == launch.RoleRank {
		switch {
		case local == 0:
			return nil, nil
		case e.Name != "mscclpp-run" && e.World > 1 && e.LocalWorld > 1:
			return nil, verb.Usage("%s made this process rank %d of %d, and -n %d asks for more ranks in each of them: leave out -n, have %s start one process for each host, or add --standalone", e.Name, e.Rank, e.World, local, e.Name)
		}
		e = e.Agent() // of a job inside a rank of ours, which is a job of its own, there is none
	}
	if local == 0 && e.PerNodeOf != "" {
		if local, err = a.count(e.PerNodeOf); err != nil {
			return nil, fmt.Errorf("%s: one rank for each %s: %w", e.Name, e.PerNodeOf, err)
		}
	}
	if local == 0 {
		local = max(1, e.PerNode)
	}
	p := &launch.Place{Local: local, Node: e.Node, Nodes: e.Nodes, MasterAddr: e.MasterAddr, MasterPort: e.MasterPort}
	if o.nodeRank >= 0 {
		p.Node = o.nodeRank
	}
	if o.nnodes > 0 {
		p.Nodes = o.nnodes
	} else if p.Nodes == 0 {
		if e.Role == launch.RoleAgent {
			return nil, verb.Usage("%s does not say how many hosts there are: expected --nnodes", e.Name)
		}
		p.Nodes = 1
	}
	if o.nnodes > 1 && o.nodeRank < 0 && e.Role != launch.RoleAgent {
		return nil, verb.Usage("--nnodes %d: expected --node-rank as well", o.nnodes)
	}
	if p.Node >= p.Nodes {
		return nil, verb.Usage("host %d of %d: expected --node-rank below --nnodes", p.Node, p.Nodes)
	}
	if p.Nodes > bootstrap.MaxRanks/local {
		return nil, verb.Usage("%d hosts with %d ranks each: expected a job of at most %d ranks", p.Nodes, local, bootstrap.MaxRanks)
	}
	p.First, p.World = p.Node*local, p.Nodes*local
	return p, a.master(p)
}

// local is the number of ranks that flags ask for, or 0.
func (a *app) local() (int, error) {
	o := &a.opts
	if o.np > launch.MaxRanks {
		return 0, verb.Usage("-n %d: expected at most %d ranks on a host", o.np, launch.MaxRanks)
	}
	switch o.perNode {
	case "":
		return o.np, nil
	case "gpu", "cpu", "auto":
		n, err := a.count(o.perNode)
		if err != nil {
			return 0, fmt.Errorf("--nproc-per-node %s: %w", o.perNode, err)
		}
		if o.np != 0 && o.np != n {
			return 0, verb.Usage("-n %d and --nproc-per-node %s, which is %d here: expected one of them", o.np, o.perNode, n)
		}
		return n, nil
	}
	n, err := strconv.Atoi(o.perNode)
	if err != nil || n < 1 || n > launch.MaxRanks {
		return 0, verb.Usage("--nproc-per-node %s: expected a number, gpu, cpu or auto: 1 to %d ranks", o.perNode, launch.MaxRanks)
	}
	if o.np != 0 && o.np != n {
		return 0, verb.Usage("-n %d and --nproc-per-node %d: expected one of them", o.np, n)
	}
	return n, nil
}

// count is how many of something this host has: processors, or devices of the type that the configuration says. As in torchrun, auto
// is processors where there is no device.
func (a *app) count(what string) (int, error) {
	if what == "cpu" {
		return runtime.NumCPU(), nil
	}
	root := a.root
	if root == nil {
		root = os.DirFS("/")
	}
	cfg, err := a.config()
	if err != nil {
		return 0, err
	}
	n, err := countDevices(context.Background(), root, question(&cfg.Config))
	if what == "auto" && errors.Is(err, framework.ErrUnavailable) {
		return runtime.NumCPU(), nil
	}
	return n, err
}

// meetingPoint takes the meeting point from the flags.
func (a *app) meetingPoint(p *launch.Place) error {
	o := &a.opts
	if o.rendezvous != "" {
		host, port, err := net.SplitHostPort(o.rendezvous)
		if err != nil {
			host, port = strings.Trim(o.rendezvous, "[]"), strconv.Itoa(defaultPort)
		}
		if _, notIP := netip.ParseAddr(host); host == "" || notIP != nil && strings.ContainsAny(host, ":[]") {
			return verb.Usage("--rendezvous %s: expected HOST or HOST:PORT, an address of IPv6 in brackets", o.rendezvous)
		}
		p.MasterAddr = host
		if p.MasterPort, err = parsePort(port); err != nil {
			return verb.Usage("--rendezvous %s: %v", o.rendezvous, err)
		}
	}
	if o.masterAddr != "" {
		p.MasterAddr = loopback.Unbracket(o.masterAddr)
	}
	if o.masterPort != 0 {
		p.MasterPort = o.masterPort
	}
	return nil
}

// master fills the meeting point from the flags, and with defaults.
func (a *app) master(p *launch.Place) error {
	if err := a.meetingPoint(p); err != nil {
		return err
	}
	if p.Nodes > 1 {
		if p.MasterAddr == "" && a.engine.Name == launch.PyTorchJob {
			return verb.Usage("RANK=%d and WORLD_SIZE=%d are set, and LOCAL_RANK and MASTER_ADDR are not: expected MASTER_ADDR or --master-addr where they count hosts, as in PyTorchJob, and LOCAL_RANK where they count ranks; or --standalone for a job of this host alone", a.engine.Node, a.engine.Nodes)
		}
		if p.MasterAddr == "" && a.engine.Name != "" {
			return verb.Usage("a job of %d hosts, and %s does not say which host has rank 0: expected --master-addr, or MASTER_ADDR in the environment of every process", p.Nodes, a.engine.Name)
		}
		if p.MasterAddr == "" {
			return verb.Usage("a job of %d hosts: expected --master-addr, the host of rank 0", p.Nodes)
		}
		if p.MasterPort == 0 {
			p.MasterPort = defaultPort
		}
		p.Job = jobName(launch.Engine{MasterAddr: p.MasterAddr, MasterPort: p.MasterPort})
		return nil
	}
	if p.MasterAddr == "" {
		p.MasterAddr = loopback.Address(false)
	}
	if p.MasterPort == 0 {
		var err error
		if p.MasterPort, err = loopback.FreePort(); err != nil {
			return err
		}
	}
	return nil
}

func parsePort(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 65535 {
		return 0, verb.Usage("port %q: expected 1 to 65535", text)
	}
	return n, nil
}
