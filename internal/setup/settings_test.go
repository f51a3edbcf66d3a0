package setup

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/config"
	"github.com/mscclpp-go/mscclpp/plugins"
)

// The configuration, which cannot import the packages that it configures, repeats their
// defaults: as values, and in words where it leaves them open.
func TestDefaultsAreThoseOfThePackages(t *testing.T) {
	d := config.Default()
	for name, c := range map[string][2]any{
		"collectives.copy_scratch": {uint64(d.Collectives.CopyScratch), uint64(collectives.DefaultCopyScratch)},
		"check.signatures":         {d.Check.Signatures, string(collectives.SignaturesStall)},
		"bootstrap.timeout":        {time.Duration(d.Bootstrap.Timeout), bootstrap.DefaultTimeout},
		"bootstrap.heartbeat":      {time.Duration(d.Bootstrap.Heartbeat), bootstrap.DefaultHeartbeat},
		"plugins.start_timeout":    {time.Duration(d.Plugins.StartTimeout), plugins.DefaultStartTimeout},
	} {
		if c[0] != c[1] {
			t.Errorf("%s is %v by default, and %v in its package", name, c[0], c[1])
		}
	}
	host := config.Bytes(collectives.HostScratch).String()
	gpu := fmt.Sprintf("%v for each rank, %v at most", config.Bytes(collectives.DeviceScratch/4), config.Bytes(collectives.DeviceScratch))
	for device, scratch := range map[string]string{"host": host, "cuda:0": gpu} {
		e, err := config.Load(config.Sources{Flags: []config.Setting{{Key: "device", Value: device, Flag: "--set"}}})
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range e.Values() {
			if v.Key == "comm.scratch" && v.Chosen != scratch {
				t.Errorf("%s: comm.scratch is said to be %s, and is %s", device, v.Chosen, scratch)
			}
		}
	}
	page, err := os.ReadFile("../../docs/config.md")
	if words := fmt.Sprintf("0: %s on the host, on a GPU %s", host, gpu); err != nil || !strings.Contains(string(page), words) {
		t.Errorf("docs/config.md does not say %q of comm.scratch (%v)", words, err)
	}
}

func TestCollectiveOptions(t *testing.T) {
	cfg := config.Default()
	o, err := collectiveOptions(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	// Package collectives chooses the values that suit a device.
	if o.Scratch != 0 || o.MaxBlocks != 0 || o.Sharing != 0 || o.NoCopies || o.NoLines || o.Signatures != collectives.SignaturesStall {
		t.Errorf("defaults %+v", o)
	}
	cfg.Collectives = config.Collectives{Sharing: 3, CopyScratch: 4 << 20, Lines: "never",
		Table: []config.Choice{{Collective: "allgather", Algorithm: "push", Blocks: 7, Threads: 96}}}
	if o, err = collectiveOptions(&cfg); err != nil {
		t.Fatal(err)
	}
	if o.Sharing != 3 || o.CopyScratch != 4<<20 || !o.NoCopies || !o.NoLines {
		t.Errorf("options %+v", o)
	}
	if row := o.Table[0]; row.Collective != collectives.AllGather || row.Blocks != 7 || row.Threads != 96 {
		t.Errorf("row %+v", row)
	}
	cfg.Collectives.Table[0].Collective = "allsum"
	if _, err := collectiveOptions(&cfg); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("collective allsum: %v, expected ErrInvalid", err)
	}
}

// Lines that a full disk does not take are not lost.
func TestLogFileThatIsFull(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	stderr := os.Stderr
	defer func() { os.Stderr = stderr }()
	os.Stderr = write
	log, closer, err := OpenLog(config.Log{Level: "warn", File: "/dev/full"}, "3")
	if err != nil {
		t.Fatal(err)
	}
	log.Error("the cause")
	log.Error("and more")
	if err := errors.Join(closer.Close(), write.Close()); err != nil {
		t.Fatal(err)
	}
	said, err := io.ReadAll(read)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"log.file: write /dev/full: no space left on device", `msg="the cause" rank=3`, `msg="and more" rank=3`} {
		if strings.Count(string(said), want) != 1 {
			t.Errorf("standard error lacks %q, or has it twice:\n%s", want, said)
		}
	}
}

// A pipe takes messages while it has a reader; otherwise it is refused at once.
func TestLogIntoAPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := OpenLog(config.Log{Level: "warn", File: pipe}, ""); !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), pipe) || !strings.Contains(err.Error(), "a pipe that somebody reads") {
		t.Errorf("a pipe without a reader: %v, expected ErrInvalid that names it", err)
	}
	reader, err := os.OpenFile(pipe, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	log, closer, err := OpenLog(config.Log{Level: "warn", File: pipe}, "")
	if err != nil {
		t.Fatal(err)
	}
	log.Error("the cause")
	if err := closer.Close(); err != nil {
		t.Error(err)
	}
	if said, err := io.ReadAll(reader); err != nil || !strings.Contains(string(said), "the cause") {
		t.Errorf("the pipe got %q, %v", said, err)
	}
}
