package topo

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"
)

func drawn(t *testing.T, h *Host) string {
	t.Helper()
	var b bytes.Buffer
	if err := h.SVG(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Every device has its box, every bundle its line, every GPU with an adapter beside it
// the line to that.
func TestDrawingShowsEverything(t *testing.T) {
	for _, c := range []struct {
		machine                         string
		nodes, gpus, nics, bundles, pix int
	}{
		{"h200", 2, 8, 1, 8, 0},
		{"dgx", 2, 8, 11, 8, 8},
		{"a100-direct", 2, 4, 1, 6, 0},
		{"a10", 1, 4, 1, 0, 0},
		{"mig", 1, 2, 1, 0, 0},
		{"no-driver", 2, 0, 4, 0, 0},
	} {
		text := drawn(t, readMachine(t, c.machine))
		for class, want := range map[string]int{"node": c.nodes, "(?:gpu|parts)": c.gpus, "nic(?: down)?": c.nics} {
			if got := len(regexp.MustCompile(`<rect class="`+class+`"`).FindAllString(text, -1)); got != want {
				t.Errorf("%s: %d boxes of %s, want %d", c.machine, got, class, want)
			}
		}
		for class, want := range map[string]int{"nv": c.bundles, "pix": c.pix, "sys": c.nodes - 1} {
			if got := strings.Count(text, fmt.Sprintf("<path class=%q", class)); got != want {
				t.Errorf("%s: %d lines of %s, want %d", c.machine, got, class, want)
			}
		}
	}
}

// A bundle is the thicker the more links it stands for.
func TestBundlesShowTheirSize(t *testing.T) {
	width := func(machine string) (w float64) {
		m := regexp.MustCompile(`class="nv" stroke-width="([0-9.]+)"`).FindStringSubmatch(drawn(t, readMachine(t, machine)))
		if m == nil {
			t.Fatalf("%s: no bundle", machine)
		}
		if _, err := fmt.Sscan(m[1], &w); err != nil {
			t.Fatal(err)
		}
		return w
	}
	if many, few := width("h200"), width("a100-direct"); many <= few {
		t.Errorf("18 links are %v wide, 4 are %v", many, few)
	}
}

// The name of a machine cannot break out of the drawing.
func TestDrawingEscapes(t *testing.T) {
	h := readMachine(t, "a10")
	h.Name, h.CPU = `</svg><script>`, `"&'`
	h.GPUs[0].Name = "<GPU>"
	text := drawn(t, h)
	if strings.Contains(text, "<script>") || strings.Contains(text, "<GPU>") {
		t.Error("names are drawn as they are")
	}
	wellFormedXML(t, []byte(text))
}

// Devices of an unknown node get a box of their own where there are several nodes.
func TestDevicesWithoutNode(t *testing.T) {
	h := readMachine(t, "h200")
	h.GPUs[7].NUMA = -1
	if text := drawn(t, h); !strings.Contains(text, "node unknown") || !strings.Contains(text, "GPU7") {
		t.Error("a GPU without node is not shown apart")
	}
	h = readMachine(t, "a10")
	h.GPUs[3].NUMA, h.NICs[0].NUMA = -1, -1
	if text := drawn(t, h); strings.Contains(text, "node unknown") || !strings.Contains(text, "GPU3") || !strings.Contains(text, "ens5") {
		t.Error("with one node there is no doubt where a device is")
	}
}
