package cuda

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/framework/internal/machinecode"
	"github.com/mscclpp-go/mscclpp/framework/internal/machinecode/cubintest"
)

func sumOf(image string) string {
	s := sha256.Sum256([]byte(image))
	return hex.EncodeToString(s[:])
}

// assembled makes a container with machine code for the test kernels. Objects of a real
// assembler are for GPUs: the test is skipped there.
func assembled(t *testing.T, chip, sum string) string {
	t.Helper()
	if !isEmulated() {
		t.Skip("its machine code has no code in it, for the emulated driver")
	}
	load(t, open(t, 0)) // so that an image stands for the kernels
	return emulated.MachineCodeOf(t, os.Getenv(emulated.EnvImages), t.TempDir(), chip, sum, []byte(testPTX))
}

// logged returns an option that uses containers, and the log about them.
func logged(files ...string) (Option, *bytes.Buffer) {
	var text bytes.Buffer
	return MachineCode(files, slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelInfo}))), &text
}

// loadForm loads the test kernels, runs one and returns the form that was loaded.
func loadForm(t *testing.T, d *Device, load func() (device.Module, error)) string {
	t.Helper()
	m, err := load()
	if err != nil || m == nil {
		t.Fatalf("%v, %v: expected a module", m, err)
	}
	closeAfter(t, m)
	v := alloc(t, d, 64)
	check(t, run(kernelOf(t, m.(*Module), "bump"), device.Launch{Grid: 3, Block: 32}, &args{v.Addr(), 2}))
	check(t, d.Sync(0))
	if got := word(t, d, v.Addr()); got != 6 {
		t.Errorf("%d, expected 6", got)
	}
	if err := run(kernelOf(t, m.(*Module), "bump"), device.Launch{Grid: 1, Block: 2048}, &args{v.Addr(), 2}); err == nil {
		t.Error("a block of 2048 is accepted")
	}
	return m.(*Module).Form()
}

// Machine code takes the place of the PTX that it was made of, whether the caller has the
// text or only knows its hash.
func TestMachineCode(t *testing.T) {
	path := assembled(t, "sm_90", sumOf(testPTX))
	use, text := logged(path)
	d := open(t, 0, use)
	for name, load := range map[string]func() (device.Module, error){
		"text": func() (device.Module, error) { return d.Load([]byte(testPTX)) },
		"hash": func() (device.Module, error) { return d.LoadAssembled(sumOf(testPTX)) },
	} {
		if form := loadForm(t, d, load); form != "machine code for sm_90" {
			t.Errorf("%s: %s is loaded", name, form)
		}
	}
	other := testPTX + "\n"
	emulated.Stand(t, os.Getenv(emulated.EnvImages), []byte(other), testStand)
	if form := loadForm(t, d, func() (device.Module, error) { return d.Load([]byte(other)) }); form != "PTX" {
		t.Errorf("of a text that has changed, %s is loaded", form)
	}
	if m, err := d.LoadAssembled(sumOf(other)); m != nil || err != nil {
		t.Errorf("%v, %v: expected none", m, err)
	}
	if got := text.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "the driver has compiled kernels") {
		t.Errorf("logged: %s", got)
	}
}

// Without machine code that fits, the driver compiles. A line of the log says why.
func TestMachineCodeThatDoesNotFit(t *testing.T) {
	damaged := func(t *testing.T, at func(data []byte) int) string {
		path := assembled(t, "sm_90", sumOf(testPTX))
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		data[at(data)] ^= 1
		check(t, os.WriteFile(path, data, 0o644))
		return path
	}
	for name, c := range map[string]struct {
		file  func(t *testing.T) string
		log   string
		level string
	}{
		"for older GPUs": {func(t *testing.T) string { return assembled(t, "sm_80", sumOf(testPTX)) }, "no machine code of kernels for this GPU", "INFO"},
		"for newer GPUs": {func(t *testing.T) string { return assembled(t, "sm_100", sumOf(testPTX)) }, "no machine code of kernels for this GPU", "INFO"},
		"missing":        {func(t *testing.T) string { return filepath.Join(t.TempDir(), "x-sm_90.cubins") }, "x-sm_90.cubins: no such file", "WARN"},
		"damaged code": {func(t *testing.T) string {
			return damaged(t, func(d []byte) int { return bytes.LastIndex(d, []byte("\x7fELF")) + 100 })
		}, "its manifest says", "WARN"},
		"damaged container": {func(t *testing.T) string { return damaged(t, func(d []byte) int { return len(d) - 20 }) }, "expected what mscclpp-kernels assemble writes", "WARN"},
		"refused": {func(t *testing.T) string {
			// Nothing stands for it: the folder of what does is another one.
			path := assembled(t, "sm_90", sumOf(testPTX))
			empty := t.TempDir()
			t.Setenv(emulated.EnvImages, empty)
			emulated.Stand(t, empty, []byte(testPTX), testStand)
			return path
		}, "the driver refuses machine code", "WARN"},
	} {
		t.Run(name, func(t *testing.T) {
			use, text := logged(c.file(t))
			d := open(t, 0, use)
			if m, err := d.LoadAssembled(sumOf(testPTX)); m != nil || err != nil {
				t.Errorf("%v, %v: expected none", m, err)
			}
			for range 2 {
				if form := loadForm(t, d, func() (device.Module, error) { return d.Load([]byte(testPTX)) }); form != "PTX" {
					t.Errorf("%s is loaded", form)
				}
			}
			if got := text.String(); strings.Count(got, c.log) != 1 || !strings.Contains(got, "level="+c.level) || strings.Count(got, "compiled kernels") != 2 {
				t.Errorf("logged: %s: expected one line at %s with %q", got, c.level, c.log)
			}
		})
	}
}

// Both forms can be loaded on the thread of a capture, in every mode, and what is captured
// is whole.
func TestLoadInACapture(t *testing.T) {
	files := []string{}
	if isEmulated() {
		files = append(files, assembled(t, "sm_90", sumOf(testPTX)))
	}
	use, _ := logged(files...)
	d, plain := open(t, 0, use), open(t, 0)
	load(t, plain)
	for _, mode := range modes {
		for name, d := range map[string]*Device{"machine code": d, "PTX": plain} {
			s, v := stream(t, d), alloc(t, d, 64)
			check(t, d.BeginCapture(s, mode))
			m, err := d.Load([]byte(testPTX))
			if err != nil {
				t.Fatalf("%v, %s: %v", mode, name, err)
			}
			check(t, run(kernelOf(t, m.(*Module), "bump"), device.Launch{Grid: 1, Block: 32, Stream: s}, &args{v.Addr(), 7}))
			g, err := d.EndCapture(s)
			if err != nil {
				t.Fatalf("%v, %s: %v", mode, name, err)
			}
			check(t, g.Launch(s))
			check(t, d.Sync(s))
			if got := word(t, d, v.Addr()); got != 7 {
				t.Errorf("%v, %s: %d, expected 7", mode, name, got)
			}
			check(t, g.Close())
			check(t, m.Close())
		}
	}
}

// A device that is closed says so.
func TestLoadAssembledOfAClosedDevice(t *testing.T) {
	d, err := Open(0)
	if err != nil {
		t.Skipf("no NVIDIA driver on this machine: %v", err)
	}
	check(t, d.Close())
	if m, err := d.LoadAssembled(sumOf(testPTX)); m != nil || err == nil {
		t.Errorf("%v, %v: expected ErrClosed", m, err)
	}
}

// A caller may load machine code of its own. That of another chip is refused by the driver.
func TestLoadOfMachineCode(t *testing.T) {
	path := assembled(t, "sm_90", sumOf(testPTX))
	library, err := machinecode.Open([]string{path}, 9, 0)
	check(t, err)
	found, err := library.Find(sumOf(testPTX))
	check(t, err)
	d := open(t, 0)
	if form := loadForm(t, d, func() (device.Module, error) { return d.Load(found.Bytes) }); form != "binary" {
		t.Errorf("%s is loaded", form)
	}
	for _, chip := range []int{80, 89, 91, 100, 120} {
		code, _ := cubintest.Object([]byte(testPTX), chip)
		if m, err := d.Load(code); err == nil || !strings.Contains(err.Error(), "expected an image for sm_90") {
			t.Errorf("sm_%d: %v, %v: expected it to be refused", chip, m, err)
		}
	}
}

// Threads that load the same at one time get the same.
func TestMachineCodeIsLoadedOnce(t *testing.T) {
	path := assembled(t, "sm_90", sumOf(testPTX))
	use, _ := logged(path)
	var group sync.WaitGroup
	modules := make([]*Module, 16)
	for i := range modules {
		d := open(t, i%2, use)
		group.Go(func() {
			m, err := d.LoadAssembled(sumOf(testPTX))
			if err != nil {
				t.Error(err)
				return
			}
			modules[i] = m.(*Module)
		})
	}
	group.Wait()
	if t.Failed() {
		t.FailNow()
	}
	for i, m := range modules {
		if m.module != modules[i%2].module {
			t.Errorf("module %d is another one", i)
		}
		closeAfter(t, m)
	}
	if n := len(residents.of); n != 2 {
		t.Errorf("%d modules for two GPUs", n)
	}
}

// Devices of one GPU share what is loaded of machine code. The last one unloads it.
func TestMachineCodeIsShared(t *testing.T) {
	path := assembled(t, "sm_90", sumOf(testPTX))
	use, _ := logged(path)
	var modules []*Module
	for range 3 {
		m, err := open(t, 0, use).LoadAssembled(sumOf(testPTX))
		check(t, err)
		modules = append(modules, m.(*Module))
	}
	other, err := open(t, 1, use).LoadAssembled(sumOf(testPTX))
	check(t, err)
	if modules[0].module != modules[2].module || modules[0].module == other.(*Module).module {
		t.Error("expected one module for each GPU")
	}
	d, v := open(t, 0), alloc(t, open(t, 0), 64)
	for i, m := range modules {
		k := kernelOf(t, m, "bump")
		check(t, run(k, device.Launch{Grid: 1, Block: 32}, &args{v.Addr(), 1}))
		check(t, d.Sync(0))
		if got := word(t, d, v.Addr()); got != uint64(i+1) {
			t.Errorf("%d, expected %d", got, i+1)
		}
		check(t, m.Close())
		check(t, m.Close())
	}
	check(t, other.Close())
	if n := len(residents.of); n != 0 {
		t.Errorf("%d modules are left", n)
	}
}
