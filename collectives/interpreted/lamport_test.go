package interpreted_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated/interpret"
)

// byLamport is the entries of packets without a flag, of one type.
func byLamport(t testing.TB) ([]*entry, map[string][]byte) {
	t.Helper()
	list, texts := entries(t, "sm_90")
	list = slices.DeleteFunc(list, func(e *entry) bool { return !strings.HasSuffix(e.name, "_lamport") || !frequent(e) })
	if len(list) < 2 {
		t.Fatalf("%d entries, expected two and more", len(list))
	}
	return list, texts
}

// again are cases in which launches come to each half several times, with the caller's kernel between them or overlapping.
func again(ranks int) []shape {
	x := shape{ranks: ranks, grid: 2, block: 32, launches: 5, bytes: 1100, caller: callerBetween}
	y := x
	y.caller = callerAtEnd
	return []shape{x, y}
}

// The two halves are enough: whatever the order of threads, launches find them empty, and nothing is without an order.
func TestLamportHalvesAreUsedAgain(t *testing.T) {
	s := start(t)
	list, texts := byLamport(t)
	for _, e := range list {
		_, _, err := s.Image(e.image, texts[e.image])
		must(t, e.image, err)
		for _, ranks := range []int{2, 3, 4} {
			for _, x := range again(ranks) {
				if _, err := execute(t, s, e, x, 1, 4, true); err != nil {
					t.Errorf("%v, %d ranks, caller %d: %v", e, ranks, x.caller, err)
				}
			}
		}
	}
}

// cleared matches the stores that put the sentinel back: the same word four times.
var cleared = regexp.MustCompile(`\tst\.volatile\.global\.v4\.u32 +\t*\[%rd\d+\], \{(%r\d+),(%r\d+),(%r\d+),(%r\d+)\};\n`)

// Each step of the protocol is needed: without it some case has wrong results, does not end, or has a race.
func TestLamportWithoutAStep(t *testing.T) {
	s := start(t)
	list, texts := byLamport(t)
	for name, without := range map[string]func(text string) string{
		"the sentinel put back": func(text string) string {
			return cleared.ReplaceAllStringFunc(text, func(store string) string {
				if m := cleared.FindStringSubmatch(store); m[1] == m[2] && m[2] == m[3] && m[3] == m[4] {
					return ""
				}
				return store
			})
		},
		"await_previous": func(text string) string { return strings.ReplaceAll(text, "griddepcontrol.wait;", "") },
	} {
		for _, e := range list {
			text := without(string(texts[e.image]))
			if text == string(texts[e.image]) {
				t.Fatalf("%s: %s: nothing was taken away", e.image, name)
			}
			image := fmt.Sprintf("%s without %s", e.image, name)
			weak := *e
			weak.image = strings.ReplaceAll(image, " ", "-")
			_, _, err := s.Image(weak.image, []byte(text))
			must(t, image, err)
			if err := weakened(t, s, &weak); err == nil {
				t.Errorf("%s: %v: nothing is reported", name, e)
			} else {
				t.Logf("%s: %v: %v", name, e, err)
			}
		}
	}
}

func weakened(t testing.TB, s *interpret.Session, e *entry) error {
	t.Helper()
	var all []error
	for _, x := range again(2) {
		_, err := execute(t, s, e, x, 1, 4, true)
		all = append(all, err)
	}
	return errors.Join(all...)
}
