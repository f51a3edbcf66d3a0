package collectives_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device/host"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/transports/shm"
)

// portsOnly is a transport that claims nothing but port channels.
type portsOnly struct{ framework.Transport }

func (t portsOnly) Describe(ctx context.Context) (framework.Description, error) {
	d, err := t.Transport.Describe(ctx)
	d.Channels = slices.DeleteFunc(slices.Clone(d.Channels), func(k framework.Kind) bool { return k != framework.KindPort })
	return d, err
}

// switchOnly is one with neither memory nor port channels.
type switchOnly struct{ framework.Transport }

func (t switchOnly) Describe(ctx context.Context) (framework.Description, error) {
	d, err := t.Transport.Describe(ctx)
	d.Channels, d.Proxy = []framework.Kind{framework.KindSwitch}, framework.ProxyNone
	return d, err
}

// A program without collectives starts over whatever channels there are; a collective
// says what is missing.
func TestWithoutMemoryAndPortChannels(t *testing.T) {
	dev, err := host.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	inner, err := shm.New(shm.Config{}.Defaults())
	if err != nil {
		t.Fatal(err)
	}
	tr, err := comm.NewTransport(t.Context(), switchOnly{inner}, "embedded")
	if err != nil {
		t.Fatal(err)
	}
	world, err := comm.New(t.Context(), bootstrap.InProcess(1)[0], comm.Options{Device: dev, Transports: []*comm.Transport{tr}})
	if err != nil {
		t.Fatal(err)
	}
	defer world.Close()
	c, err := collectives.New(t.Context(), world, collectives.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var x float32
	p := unsafe.Pointer(&x)
	_, choice := c.Choice(collectives.Request{Collective: collectives.AllReduce}, "")
	for name, err := range map[string]error{
		"all-reduce": c.AllReduce(p, p, 1, kernel.Float32, kernel.Sum, nil),
		"send":       c.Send(p, 1, kernel.Float32, 0, &collectives.CallOptions{Algorithm: "chunk"}),
		"barrier":    c.Barrier(nil),
		"choice":     choice,
	} {
		if !errors.Is(err, framework.ErrUnsupported) {
			t.Errorf("%s: %v, expected ErrUnsupported", name, err)
		}
	}
	if names := c.Algorithms(collectives.SendRecv); len(names) != 0 {
		t.Errorf("algorithms %q, expected none", names)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
