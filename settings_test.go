package mscclpp

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/config"
)

func TestCollectiveOptions(t *testing.T) {
	cfg := config.Default()
	o, err := collectiveOptions(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	// What suits a device is for package collectives to say.
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

// What a full disk does not take is not lost.
func TestLogFileThatIsFull(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	stderr := os.Stderr
	defer func() { os.Stderr = stderr }()
	os.Stderr = write
	log, closer, err := openLog(config.Log{Level: "warn", File: "/dev/full"}, "3")
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
