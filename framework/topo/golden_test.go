package topo

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

var update = flag.Bool("update", false, "rewrite the expected tables and drawings in testdata")

// machines are what the tables and drawings in testdata show.
var machines = []struct{ name, recording string }{
	{"virtual", "virtual"},
	{"two-sockets", "two-sockets"},
	{"no-driver", "two-sockets"},
	{"h200", "h200"},
	{"h200-pair", "h200-pair"},
	{"dgx", "dgx"},
	{"a10", "a10"},
	{"a100-direct", "a100-direct"},
	{"mig", "mig"},
}

// readMachine reads a recorded machine with the GPUs of its recording.
func readMachine(t *testing.T, name string) *Host {
	t.Helper()
	recording := name
	for _, m := range machines {
		if m.name == name {
			recording = m.recording
		}
	}
	root := machine(t, recording)
	find := Recorded(root)
	switch name {
	case "two-sockets":
		find = gpus
	case "no-driver":
		find = func() ([]GPU, error) {
			return nil, fmt.Errorf("%w: no NVIDIA driver: libnvidia-ml.so.1 is not there", framework.ErrUnavailable)
		}
	}
	h, err := Read(root, find)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	file = filepath.Join("testdata", file)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: got\n%s\nwant\n%s", file, got, want)
	}
}

func TestTables(t *testing.T) {
	for _, m := range machines {
		var got bytes.Buffer
		if err := readMachine(t, m.name).Print(&got); err != nil {
			t.Fatal(err)
		}
		golden(t, m.name+".table", got.Bytes())
	}
}

// TestDrawings compares drawings, and checks that each is well formed and that
// nothing is drawn outside.
func TestDrawings(t *testing.T) {
	for _, m := range machines {
		var got bytes.Buffer
		if err := readMachine(t, m.name).SVG(&got); err != nil {
			t.Fatal(err)
		}
		golden(t, m.name+".svg", got.Bytes())
		wellFormed(t, m.name, got.Bytes())
	}
}

func wellFormed(t *testing.T, name string, text []byte) {
	t.Helper()
	var width, height int
	d := xml.NewDecoder(bytes.NewReader(text))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		e, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		at := map[string]int{}
		for _, a := range e.Attr {
			var n int
			if _, err := fmt.Sscan(a.Value, &n); err == nil {
				at[a.Name.Local] = n
			}
		}
		switch e.Name.Local {
		case "svg":
			width, height = at["width"], at["height"]
		case "rect", "text":
			if at["x"] < 0 || at["y"] < 0 || at["x"]+at["width"] > width || at["y"]+at["height"] > height {
				t.Errorf("%s: %s at %v lies outside of %d x %d", name, e.Name.Local, at, width, height)
			}
		}
	}
}

func wellFormedXML(t *testing.T, text []byte) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(text))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
	}
}
