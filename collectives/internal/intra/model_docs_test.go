package intra

import (
	"fmt"
	"github.com/mscclpp-go/mscclpp/collectives/internal/choose"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"os"
	"strings"
	"testing"
)

// Marks around the rows for eight H200s in the documentation.
const (
	firstRow = "<!-- rows for eight H200s, by the model: a test in collectives holds them -->\n"
	lastRow  = "<!-- end of the rows for eight H200s -->\n"
)

// TestRowsInTheDocumentation keeps the example in the documentation true.
func TestRowsInTheDocumentation(t *testing.T) {
	text, err := os.ReadFile("../../../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), firstRow)
	got, _, ended := strings.Cut(rest, lastRow)
	if !found || !ended {
		t.Fatalf("docs/performance.md: expected rows between %q and %q", firstRow, lastRow)
	}
	c := modeledOn(t, overH200s(8), 8)
	var b strings.Builder
	b.WriteString("\n| | registered buffers | ordinary buffers |\n|---|---|---|\n")
	for _, k := range []collective.Kind{collective.AllReduce, collective.AllGather, collective.ReduceScatter, collective.AllToAll, collective.Broadcast, collective.Reduce} {
		fmt.Fprintf(&b, "| %v | %s | %s |\n", k, stretchesOf(t, c, k, true), stretchesOf(t, c, k, false))
	}
	if want := b.String() + "\n"; got != want {
		t.Errorf("docs/performance.md has other rows than the model makes: expected %s", want)
	}
}

// stretchesOf says in a line what a collective is made with: "direct_ll8 to 256K, push".
func stretchesOf(t *testing.T, c *gpu, k collective.Kind, registered bool) string {
	t.Helper()
	var out []string
	last, end := "", uint64(0)
	for power := uint64(choose.LeastModeled); power <= choose.MostModeled; power *= 2 {
		for _, bytes := range []uint64{power, min(power+power/2, choose.MostModeled)} {
			r := asks(c, k, bytes, registered)
			a, _, err := c.find(&r, "")
			if err != nil {
				t.Fatal(err)
			}
			if last != "" && a.Name != last {
				out = append(out, last+" to "+short(end))
			}
			last, end = a.Name, bytes
		}
	}
	return strings.Join(append(out, last), ", ")
}

func short(bytes uint64) string {
	for _, u := range []struct {
		unit  string
		bytes uint64
	}{{"G", 1 << 30}, {"M", 1 << 20}, {"K", 1 << 10}} {
		if bytes >= u.bytes {
			return strings.TrimSuffix(fmt.Sprintf("%.1f", float64(bytes)/float64(u.bytes)), ".0") + u.unit
		}
	}
	return fmt.Sprint(bytes)
}
