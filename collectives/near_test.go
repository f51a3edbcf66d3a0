package collectives

import (
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Kernels that cut messages count up to mostOfLaunch bytes right.
func TestLinesAreCounted(t *testing.T) {
	dir := t.TempDir()
	const source = `#include "stream.h"
#include <initializer_list>
int main() {
  using C = mscclpp::collectives::LineCarrier;
  for (uint64_t bytes : {uint64_t(MOST), uint64_t(PART), uint64_t(1), uint64_t(120), uint64_t(121)}) {
    if (C::units(bytes) != (bytes + 119) / 120 * 8) return 1;
  }
}`
	program := filepath.Join(dir, "units")
	build := exec.CommandContext(t.Context(), "g++", "-std=c++17", "-Ikernels", "-I../framework/kernel/include",
		"-DMOST="+strconv.Itoa(mostOfLaunch), "-DPART="+strconv.Itoa(launchPart), "-x", "c++", "-", "-o", program)
	in, err := build.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer in.Close()
		_, _ = in.Write([]byte(source))
	}()
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	if err := exec.CommandContext(t.Context(), program).Run(); err != nil {
		t.Error(err)
	}
}

// launches notes what it is to do.
type launches []kernelargs.LLArgs

func (l *launches) Launch(_ device.Launch, args unsafe.Pointer, bytes uintptr) error {
	if bytes != unsafe.Sizeof(kernelargs.LLArgs{}) {
		panic(bytes)
	}
	*l = append(*l, *(*kernelargs.LLArgs)(args))
	return nil
}

// What ranks have in common may have more bytes than a launch counts: then there are several,
// one behind the other. What each has for each other may not.
func TestMoreThanALaunchCounts(t *testing.T) {
	p, _ := nearProtocol("stream_ll128")
	for bytes, fits := range map[uint64]bool{mostOfLaunch: true, mostOfLaunch + 1: false} {
		for k, x := range map[Collective]Request{
			AllGather: {Bytes: 2 * bytes}, ReduceScatter: {Bytes: 2 * bytes}, AllToAll: {Bytes: 2 * bytes},
			AllReduce: {Bytes: bytes}, Broadcast: {Bytes: bytes}, Reduce: {Bytes: bytes},
		} {
			x.Collective, x.Count, x.Type, x.Ranks, x.lineSlot = k, bytes, kernel.Uint8, 2, 1<<30
			if got := p.room(&x) <= p.of(&x); got != (fits || !k.Wide()) {
				t.Errorf("%v of %d bytes of each rank: fits %v", k, bytes, got)
			}
		}
	}
	for _, typ := range []kernel.DataType{kernel.Uint8, kernel.Float16, kernel.Float64} {
		element := uint64(typ.Size())
		for _, count := range []uint64{0, 1, launchPart / element, launchPart/element + 1, 32 << 30 / element} {
			c, done := &Comm{}, launches(nil)
			c.args.Count, c.args.Element, c.args.Input, c.args.Output = count, uint32(element), 1<<40, 1<<44
			if err := c.launchNear(&done, p, device.Launch{Grid: 128, Block: 512}); err != nil {
				t.Fatal(err)
			}
			sum := uint64(0)
			for _, a := range done {
				if at := uintptr(sum * element); a.Input != 1<<40+at || a.Output != 1<<44+at || a.Count*element > mostOfLaunch || at%16 != 0 {
					t.Errorf("%d of %v: a launch of %d from %#x to %#x, %d behind the beginning", count, typ, a.Count, a.Input, a.Output, at)
				}
				sum += a.Count
			}
			if want := max(1, int((count*element+launchPart-1)/launchPart)); sum != count || len(done) != want {
				t.Errorf("%d of %v: %d launches of %d in all, expected %d", count, typ, len(done), sum, want)
			}
		}
	}
}
