package gpulink

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

func TestListenRefuses(t *testing.T) {
	tr := transport(t, recorded(t, "h200"))
	for name, c := range map[string]struct {
		change func(*framework.EndpointConfig)
		class  error
		want   string
	}{
		"switch":       {func(c *framework.EndpointConfig) { c.Kind = framework.KindSwitch }, framework.ErrUnsupported, "channels of switch"},
		"kind":         {func(c *framework.EndpointConfig) { c.Kind = 9 }, framework.ErrUnsupported, "channels of"},
		"host":         {func(c *framework.EndpointConfig) { c.Device = framework.Host }, framework.ErrUnsupported, "kernels on host"},
		"hip":          {func(c *framework.EndpointConfig) { c.Device.Type = "hip" }, framework.ErrUnsupported, "NVIDIA"},
		"no such GPU":  {func(c *framework.EndpointConfig) { c.Device = cuda(8) }, framework.ErrUnavailable, "shows 8 GPUs"},
		"not a member": {func(c *framework.EndpointConfig) { c.Rank = 5 }, framework.ErrInvalid, "own rank 5"},
		"descending":   {func(c *framework.EndpointConfig) { c.Ranks = []int{1, 0} }, framework.ErrInvalid, "ascending"},
		"twice":        {func(c *framework.EndpointConfig) { c.Ranks = []int{0, 0} }, framework.ErrInvalid, "ascending"},
		"three":        {func(c *framework.EndpointConfig) { c.Ranks = []int{0, 1, 2} }, framework.ErrInvalid, "expected 2"},
		"none":         {func(c *framework.EndpointConfig) { c.Ranks = nil }, framework.ErrInvalid, "expected 2"},
		"negative":     {func(c *framework.EndpointConfig) { c.Rank, c.Ranks = -1, []int{-1, 0} }, framework.ErrInvalid, "expected 2"},
		"long name":    {func(c *framework.EndpointConfig) { c.Facts.Host = strings.Repeat("x", 300) }, framework.ErrInvalid, "300 bytes"},
	} {
		cfg := config(framework.KindMemory, 0, 0, 1)
		c.change(&cfg)
		_, err := tr.Listen(bound(t), cfg)
		if framework.Class(err) != c.class || !strings.Contains(fmt.Sprint(err), c.want) || !strings.HasPrefix(fmt.Sprint(err), "cudaipc listen: ") {
			t.Errorf("%s: %v: want %v with %q", name, err, c.class, c.want)
		}
	}
}

func TestConnectRefuses(t *testing.T) {
	ta, tb := transport(t, recorded(t, "h200")), transport(t, recorded(t, "h200"))
	end := listen(t, ta, config(framework.KindMemory, 0, 0, 1))
	other := func(change func(*framework.EndpointConfig)) framework.Parcel {
		c := config(framework.KindMemory, 1, 0, 1)
		change(&c)
		return listen(t, tb, c).Address
	}
	good := other(func(*framework.EndpointConfig) {})
	future := framework.Parcel{Data: bytes.Clone(good.Data)}
	future.Data[4] = 9
	for _, c := range []struct {
		name    string
		address framework.Parcel
		want    string
	}{
		{"host", other(func(c *framework.EndpointConfig) { c.Facts.Host = "elsewhere" }), `host "elsewhere"`},
		{"kind", other(func(c *framework.EndpointConfig) { c.Kind = framework.KindPort }), "port link: expected memory"},
		{"group", other(func(c *framework.EndpointConfig) { c.Group = "other" }), "another group"},
		{"ranks", other(func(c *framework.EndpointConfig) { c.Ranks = []int{1, 2} }), "other ranks"},
		{"own address", end.Address, "address of rank 0"},
		{"version", future, "version 9: expected 2; the ranks run different builds"},
		{"nothing", framework.Parcel{}, "no address of cudaipc"},
		{"a share", framework.Parcel{Data: good.Data, Shares: []framework.Share{share(t, local)}}, "1 shares: expected none"},
	} {
		_, err := ta.Connect(bound(t), end.ID, []framework.Peer{{Rank: 1, Address: c.address}})
		if framework.Class(err) != framework.ErrPeer || !strings.Contains(fmt.Sprint(err), c.want) || framework.PeerOf(err) != 1 {
			t.Errorf("%s: %v: want ErrPeer that names rank 1, with %q", c.name, err, c.want)
		}
	}
	for name, peers := range map[string][]framework.Peer{
		"no peer":    nil,
		"a stranger": {{Rank: 7, Address: good}},
		"two":        {{Rank: 1, Address: good}, {Rank: 1, Address: good}},
	} {
		if _, err := ta.Connect(bound(t), end.ID, peers); framework.Class(err) != framework.ErrInvalid || !strings.Contains(err.Error(), "expected ranks [1]") {
			t.Errorf("%s: %v: want ErrInvalid", name, err)
		}
	}
	if _, err := ta.Connect(bound(t), end.ID, []framework.Peer{{Rank: 1, Address: good}}); err != nil {
		t.Errorf("the good address: %v", err)
	}
}

// With an endpoint its connections end, and what was closed is not found again.
func TestCloseEndsConnections(t *testing.T) {
	ta, tb := transport(t, recorded(t, "h200")), transport(t, recorded(t, "h200"))
	ea, eb := listen(t, ta, config(framework.KindPort, 0, 0, 1)), listen(t, tb, config(framework.KindPort, 1, 0, 1))
	conn := must[framework.ID](t)(ta.Connect(bound(t), ea.ID, []framework.Peer{{Rank: 1, Address: eb.Address}}))
	reg := register(t, tb, vmm)
	for _, id := range []framework.ID{0, 999, ea.ID, ea.ID, conn} {
		if err := ta.Close(context.Background(), id); err != nil {
			t.Errorf("close %d: %v: want none, however often", id, err)
		}
	}
	if _, err := attach(t, ta, conn, reg); framework.Class(err) != framework.ErrInvalid {
		t.Errorf("attach to a connection whose endpoint is closed: %v: want ErrInvalid", err)
	}
	if n := ta.made.Len(); n != 0 {
		t.Errorf("%d things are left: want none", n)
	}
}

// Many ranks of one process listen and connect at once; the driver is asked once.
func TestConcurrentLinks(t *testing.T) {
	tr := transport(t, recorded(t, "h200"))
	var group sync.WaitGroup
	for i := range 7 {
		group.Go(func() {
			a, b := config(framework.KindMemory, i, i, i+1), config(framework.KindMemory, i+1, i, i+1)
			ea, err := tr.Listen(context.Background(), a)
			if err != nil {
				t.Error(err)
				return
			}
			eb, err := tr.Listen(context.Background(), b)
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := tr.Connect(context.Background(), ea.ID, []framework.Peer{{Rank: i + 1, Address: eb.Address}}); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if n := tr.made.Len(); n != 21 {
		t.Errorf("%d things were made: want 14 endpoints and 7 connections", n)
	}
}
