package devicetest

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
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
)

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

// network makes the transport between hosts.
func network(name string, direct bool) (framework.Transport, error) {
	if name == overSockets {
		return tcp.New(tcp.Config{}.Defaults())
	}
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
