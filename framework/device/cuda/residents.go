package cuda

import (
	"sync"

	"github.com/mscclpp-go/mscclpp/framework/device/native"
)

// residents are the modules of machine code that the process has loaded. Each communicator of
// an NCCL program has a device of its own for the same GPU, and all of them use the same.
var residents = struct {
	sync.Mutex
	of map[residentKey]*resident
}{of: map[residentKey]*resident{}}

type residentKey struct {
	driver *native.Backend
	index  int
	sha256 string // of the machine code
}

type resident struct {
	key   residentKey
	users int // under the lock of residents

	loading sync.Mutex
	module  *native.Module // of the device that loaded it, which lives as long; nil until then
}

func enterResident(key residentKey) *resident {
	residents.Lock()
	defer residents.Unlock()
	r := residents.of[key]
	if r == nil {
		r = &resident{key: key}
		residents.of[key] = r
	}
	r.users++
	return r
}

// leave ends one use, and reports whether it was the last.
func (r *resident) leave() (last bool) {
	residents.Lock()
	defer residents.Unlock()
	if r.users--; r.users > 0 {
		return false
	}
	delete(residents.of, r.key)
	return true
}
