package plans

import (
	"encoding/xml"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/plan/schema"
	"github.com/mscclpp-go/mscclpp/plan/verify"
)

// The widths of DejaVu Sans, one of the widest fonts that readers have, in 2048ths of its size.
var widths = map[rune]float64{
	'a': 1255, 'b': 1300, 'c': 1126, 'd': 1300, 'e': 1260, 'f': 721, 'g': 1300, 'h': 1298, 'i': 569, 'j': 569, 'k': 1186, 'l': 569, 'm': 1995, 'n': 1298,
	'o': 1253, 'p': 1300, 'q': 1300, 'r': 842, 's': 1067, 't': 803, 'u': 1298, 'v': 1212, 'w': 1675, 'x': 1212, 'y': 1212, 'z': 1075,
	' ': 651, ':': 690, ';': 690, ',': 651, '.': 651, '-': 739, '_': 1024, '→': 1716,
}

func inDejaVu(text string, size float64, bold bool) float64 {
	const digit, bolder = 1303, 1.14 // the bold face has digits of 1425, and no letter grows more
	n := 0.0
	for _, c := range text {
		if w, ok := widths[c]; ok {
			n += w
		} else {
			n += digit
		}
	}
	if bold {
		n *= bolder
	}
	return n / 2048 * size
}

type svgText struct {
	X      float64 `xml:"x,attr"`
	Y      float64 `xml:"y,attr"`
	Anchor string  `xml:"text-anchor,attr"`
	Class  string  `xml:"class,attr"`
	Length float64 `xml:"textLength,attr"`
	Text   string  `xml:",chardata"`
}

func (t *svgText) ends() (from, to float64) {
	bold := t.Class == "title" || t.Class == "rank"
	size := float64(small)
	if t.Class == "title" {
		size = large
	}
	n := inDejaVu(t.Text, size, bold)
	if t.Length != 0 {
		n = t.Length
	}
	if t.Anchor == "end" {
		return t.X - n, t.X
	}
	return t.X, t.X + n
}

// All text of a drawing lies in the drawing, that of a box in the box, and no two texts of a line touch.
func TestTextHasRoom(t *testing.T) {
	long := strings.Repeat("a-long-name-", 8) + "1x2"
	for _, name := range []string{"right/alltoall_semaphore", "right/pipeline", "right/groups_with_barrier", "right/allreduce_switch", "right/allgather_packet_ring"} {
		p, err := schema.ReadFile("../../../../plan/verify/testdata/" + name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		p.Name = long
		events, err := verify.Trace(p)
		if err != nil {
			t.Fatal(err)
		}
		var drawing struct {
			Width float64   `xml:"width,attr"`
			Texts []svgText `xml:"text"`
			Boxes []struct {
				Rect struct {
					X     float64 `xml:"x,attr"`
					Width float64 `xml:"width,attr"`
				} `xml:"rect"`
				Text svgText `xml:"text"`
			} `xml:"g"`
		}
		if err := xml.Unmarshal([]byte(draw(p, events, nil)), &drawing); err != nil {
			t.Fatal(err)
		}
		if len(drawing.Texts) < 4 || len(drawing.Boxes) == 0 {
			t.Fatalf("%s: %d texts, %d boxes", name, len(drawing.Texts), len(drawing.Boxes))
		}
		lines := map[float64][]svgText{}
		for _, x := range drawing.Texts {
			if from, to := x.ends(); from < 0 || to > drawing.Width {
				t.Errorf("%s: %q goes from %.0f to %.0f in a drawing of %.0f", name, x.Text, from, to, drawing.Width)
			}
			lines[x.Y] = append(lines[x.Y], x)
		}
		for _, list := range lines {
			for i := range list {
				for k := range i {
					a, b := &list[i], &list[k]
					if af, at := a.ends(); func() bool { bf, bt := b.ends(); return af < bt && bf < at }() {
						t.Errorf("%s: %q and %q touch", name, a.Text, b.Text)
					}
				}
			}
		}
		for _, b := range drawing.Boxes {
			if from, to := b.Text.ends(); from < b.Rect.X || to > b.Rect.X+b.Rect.Width {
				t.Errorf("%s: %q goes from %.0f to %.0f in a box from %.0f to %.0f", name, b.Text.Text, from, to, b.Rect.X, b.Rect.X+b.Rect.Width)
			}
		}
	}
}

// The measure of a text is never below its width.
func TestWidestIsWide(t *testing.T) {
	for _, name := range schema.Ops() {
		for _, bold := range []bool{false, true} {
			if got, want := widest(string(name), small, bold), inDejaVu(string(name), small, bold); got < want {
				t.Errorf("%s, bold %v: %.1f, it has %.1f", name, bold, got, want)
			}
		}
	}
}
