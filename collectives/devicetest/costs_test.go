package devicetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/collectives/image"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	deviceimage "github.com/mscclpp-go/mscclpp/framework/kernel/image"
)

// costsFile names the file to which tests of this package that measure add lines of
// JSON. Without it they measure little, and show that they can.
const costsFile = "GPU_TEST_COSTS"

// cost is such a line. Times are medians on the slowest rank.
type cost struct {
	Cost     string  `json:"cost"` // the quantity that was measured
	Ranks    int     `json:"ranks"`
	Device   string  `json:"device"`
	Bytes    int64   `json:"bytes,omitempty"`
	Beside   string  `json:"beside,omitempty"` // the algorithm, or NCCL, that ran with it
	With     string  `json:"with,omitempty"`   // options of the call and its stream
	TimeUS   float64 `json:"time_us"`
	AloneUS  float64 `json:"alone_us"`          // without what it costs
	CostUS   float64 `json:"cost_us"`           // the difference
	CallUS   float64 `json:"call_us,omitempty"` // of the collective itself, while the other ran
	FreeUS   float64 `json:"free_us,omitempty"` // of the collective alone
	GoalUS   float64 `json:"goal_us,omitempty"` // at most; 0: there is none
	GoalKept bool    `json:"goal_kept"`
}

// keep prints the line, and writes it where it is wanted.
func (c cost) keep(t *testing.T) {
	t.Helper()
	c.CostUS = c.TimeUS - c.AloneUS
	c.GoalKept = c.GoalUS == 0 || c.CostUS <= c.GoalUS
	line, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", line)
	if c.TimeUS <= 0 || c.AloneUS <= 0 {
		t.Errorf("%s: %g and %g µs: expected times", c.Cost, c.TimeUS, c.AloneUS)
	}
	name := os.Getenv(costsFile)
	if name == "" {
		return
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(append(line, '\n'))
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// often is how many times something is measured.
func often(measured, shown int) int {
	if os.Getenv(costsFile) != "" {
		return measured
	}
	return shown
}

func median(of []float64) float64 {
	all := slices.Sorted(slices.Values(of))
	return all[len(all)/2]
}

// slowest is the largest number that a rank gave.
type slowest struct {
	mu   sync.Mutex
	most float64
}

func (s *slowest) add(x float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.most = max(s.most, x)
}

// gpusHere is how many ranks the machine has room for, at most so many; two share the
// only GPU.
func gpusHere(t *testing.T, most int) int {
	t.Helper()
	gpus := needsGPU(t)
	return min(most, max(2, len(gpus)))
}

// emptyKernel is a kernel that does nothing with as many bytes of arguments as one for
// small messages.
type emptyKernel struct {
	device.Kernel
	args []byte
}

var emptyPTX = `.version 7.0
.target sm_80
.address_size 64
.visible .entry nothing(.param .align 8 .b8 nothing_param_0[%d]) { ret; }
`

// argumentBytes is the size of the arguments of a kernel for small messages.
func argumentBytes(t *testing.T) int {
	t.Helper()
	set, err := image.Images()
	if err != nil {
		t.Fatal(err)
	}
	text, err := set.Read("allreduce-f16-sm_90")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`mscclpp_allreduce_oneshot_ll8_param_0\[(\d+)\]`).FindSubmatch(text)
	if m == nil {
		t.Fatal("the kernel for small messages has no arguments")
	}
	n, err := strconv.Atoi(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// emptyImage prepares that kernel's image.
func emptyImage(t *testing.T, bytes int) []byte {
	t.Helper()
	ptx := fmt.Appendf(nil, emptyPTX, bytes)
	if imageFolder != "" {
		emulated.Stand(t, imageFolder, ptx, `extern "C" void nothing(const void*, const void*) {}`)
	}
	return ptx
}

func loadEmpty(r *rank, ptx []byte, bytes int) (emptyKernel, error) {
	m, err := r.world.LoadImage(ptx)
	if err != nil {
		return emptyKernel{}, err
	}
	r.modules = append(r.modules, m)
	k, err := m.Kernel("nothing")
	return emptyKernel{k, make([]byte, bytes)}, err
}

// launch launches it as calls launch theirs.
func (k emptyKernel) launch(r *rank) error {
	l := device.Launch{Grid: 1, Block: 32, Stream: r.stream, Overlap: true}
	return k.Launch(l, unsafe.Pointer(unsafe.SliceData(k.args)), uintptr(len(k.args)))
}

// clock takes times on a stream.
type clock struct{ start, end *cuda.Event }

func newClock(dev *cuda.Device) (c clock, err error) {
	if c.start, err = dev.NewEvent(true); err != nil {
		return c, err
	}
	c.end, err = dev.NewEvent(true)
	return c, err
}

func (c clock) close() error {
	var all []error
	for _, e := range []*cuda.Event{c.start, c.end} {
		if e != nil {
			all = append(all, e.Close())
		}
	}
	return errors.Join(all...)
}

// time is how long the stream takes for what f enqueues, in microseconds.
func (c clock) time(ctx context.Context, r *rank, s device.Stream, f func() error) (float64, error) {
	if err := errors.Join(c.start.Record(s), f(), c.end.Record(s), r.world.Settle(ctx, s), r.world.Check()); err != nil {
		return 0, err
	}
	return c.read()
}

func (c clock) read() (float64, error) {
	took, err := c.end.Since(c.start)
	return float64(took) / float64(time.Microsecond), err
}

// folders are where a folder of the tree is: beside the test program, as dist-gpu.sh
// packs it, or in the tree.
func folders(packed, tree string) (fs.FS, error) {
	for _, dir := range []string{packed, filepath.FromSlash(tree)} {
		if _, err := os.Stat(filepath.Join(dir, deviceimage.ManifestFile)); err == nil {
			return os.DirFS(dir), nil
		}
	}
	return nil, fmt.Errorf("neither %s nor %s has kernel images", packed, tree)
}

// options of jobs that measure: memory as in production, where there is room.
func costly() collectives.Options {
	if imageFolder != "" {
		return collectives.Options{}
	}
	return collectives.Options{Scratch: 256 << 20, CopyScratch: 512 << 20}
}
