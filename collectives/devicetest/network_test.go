package devicetest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/topo"
	"github.com/mscclpp-go/mscclpp/transports/cudaipc"
	"github.com/mscclpp-go/mscclpp/transports/ib-host"
	"github.com/mscclpp-go/mscclpp/transports/ib-nonatomic"
	"github.com/mscclpp-go/mscclpp/transports/tcp"
)

// Networks between hosts. Those of verbs have adapters without hardware, which reach
// memory of emulated GPUs: one raises semaphores where they are, the other leaves counts
// for the rank to forward.
const (
	overSockets   = ""
	overAtomics   = ibhost.Name
	overImmediate = ibnonatomic.Name
	overCopies    = "copies" // copy engines stand for adapters: GPUs of one machine, which may be real
)

// copies is the transport within a machine, as one between hosts: it has port channels
// alone, and says that it takes memory of GPUs as adapters do.
type copies struct{ *cudaipc.Transport }

func (c copies) Describe(ctx context.Context) (framework.Description, error) {
	d, err := c.Transport.Describe(ctx)
	d.Name, d.Channels, d.Kernels, d.Images = overCopies, []framework.Kind{framework.KindPort}, nil, nil
	d.Needs = append(d.Needs, framework.NeedDMABuf)
	return d, err
}

func (c copies) Listen(ctx context.Context, cfg framework.EndpointConfig) (framework.Endpoint, error) {
	cfg.Facts.Host = "" // all are on one
	return c.Transport.Listen(ctx, cfg)
}

// adapters is the library of verbs without hardware. It is compiled once.
var adapters = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "mscclpp-adapters-*")
	if err != nil {
		return "", err
	}
	adapterFolder = dir
	path := filepath.Join(dir, "libibverbs.so")
	text, err := exec.Command("cc", "-shared", "-fPIC", "-O1", "-DDMABUF", "-o", path, fakeAdapters).CombinedOutput()
	if err != nil {
		return "", &exec.Error{Name: string(text), Err: err}
	}
	return path, nil
})

const fakeAdapters = "../../transports/internal/verbs/testdata/fake.c"

// adapterFolder is where it lies; "" while it was not asked for.
var adapterFolder string

// networks makes the transports between hosts.
func networks(name string, direct bool, gpus []topo.GPU) ([]framework.Transport, error) {
	if name == overSockets || name == overCopies {
		sockets, err := tcp.New(tcp.Config{}.Defaults())
		if err != nil || name == overSockets {
			return []framework.Transport{sockets}, err
		}
		inner, err := cudaipc.NewWith(cudaipc.Config{}.Defaults(), func(context.Context) ([]topo.GPU, error) { return gpus, nil })
		if err != nil {
			return nil, err
		}
		return []framework.Transport{copies{inner.(*cudaipc.Transport)}, sockets}, nil
	}
	one, err := adapter(name, direct)
	return []framework.Transport{one}, err
}

func adapter(name string, direct bool) (framework.Transport, error) {
	library, err := adapters()
	if err != nil {
		return nil, err
	}
	if name == overAtomics {
		c := ibhost.Config{}.Defaults()
		c.Library, c.GPUDirect = library, direct
		return ibhost.New(c)
	}
	c := ibnonatomic.Config{}.Defaults()
	c.Library, c.GPUDirect = library, direct
	return ibnonatomic.New(c)
}
