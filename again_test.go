package mscclpp_test

import (
	"net"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

// A process joins the job of its launcher once. A second Init fails at once on every
// rank, and says what was expected; it waits for nobody and harms nothing.
func TestSecondInitUnderALauncher(t *testing.T) {
	for mode, others := range map[string][]string{
		"nested": {"rank 1 checked in after all ranks were there: expected one process for each rank, which joins its job once"},
		// Rank 0 closes its job meanwhile: whatever rank 1 meets, it is an answer.
		"again": {"checked in after all ranks were there", "rank 0 has left the job", "a process joins a job once"},
	} {
		t.Run(mode, func(t *testing.T) {
			printed, codes := ranks(t, mode, mode)
			for r, text := range printed {
				if codes[r] != 0 || !strings.Contains(text, "again, late false, ") || !strings.Contains(text, " of 2 is done\n") {
					t.Errorf("rank %d: code %d, %q: expected an error at once, and an end in order", r, codes[r], text)
				}
			}
			if want := "class " + framework.ErrInvalid.Error() + ": "; !strings.Contains(printed[0], want) ||
				!strings.Contains(printed[0], "expected the listener at 127.0.0.1:") || !strings.Contains(printed[0], "joins the launcher's job, once") {
				t.Errorf("rank 0: %q: expected to hear that the listener was taken before", printed[0])
			}
			said := false
			for _, want := range others {
				said = said || strings.Contains(printed[1], want)
			}
			if !said {
				t.Errorf("rank 1: %q: expected one of %q", printed[1], others)
			}
		})
	}
}

// The configuration's family reaches the rendezvous.
func TestFamilyIsHonored(t *testing.T) {
	if l, err := net.Listen("tcp6", "[::1]:0"); err != nil {
		t.Skipf("no IPv6 on the loopback interface: %v", err)
	} else {
		l.Close()
	}
	t.Setenv("MSCCLPP_BOOTSTRAP__FAMILY", "inet6") // ranks meets at 127.0.0.1
	printed, codes := ranks(t, "work", "work")
	for r, want := range []string{"rank 0 was given a listener at 127.0.0.1:", "rank 0 listens at [127.0.0.1:"} {
		if codes[r] != 3 || !strings.Contains(printed[r], want) || !strings.Contains(printed[r], "expected an IPv6 address, because bootstrap.family is inet6") {
			t.Errorf("rank %d: code %d, %q: expected %q", r, codes[r], printed[r], want)
		}
	}
	t.Setenv("MSCCLPP_BOOTSTRAP__FAMILY", "inet")
	if printed, codes = ranks(t, "work", "work"); codes[0] != 0 || codes[1] != 0 {
		t.Errorf("codes %d, %q", codes, printed)
	}
}
