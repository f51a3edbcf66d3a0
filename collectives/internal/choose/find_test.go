package choose

import (
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
)

// A name that is nearly right is answered with the one that was probably meant.
func TestNoSuchAlgorithm(t *testing.T) {
	offered := []*engine.Algorithm{{Name: "ring"}, {Name: "zerocopy"}}
	for name, want := range map[string]string{
		"rnig": `algorithm "rnig" (did you mean "ring"?): expected one of ring zerocopy`,
		"best": `algorithm "best": expected one of ring zerocopy`,
	} {
		if err := NoSuch(offered, name); !strings.Contains(err.Error(), want) {
			t.Errorf("%v: expected %q", err, want)
		}
	}
}
