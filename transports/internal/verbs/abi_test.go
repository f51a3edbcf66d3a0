package verbs

import (
	"os"
	"os/exec"
	"testing"
)

// The layouts that are written out must be those of the library's own headers. The
// compiler compares them.
func TestLayouts(t *testing.T) {
	const header = "/usr/include/infiniband/verbs.h"
	if _, err := os.Stat(header); err != nil {
		t.Skipf("libibverbs-dev is not installed: no %s", header)
	}
	if out, err := exec.Command(compiler(), "-std=gnu11", "-c", "-o", os.DevNull, "testdata/abi.c").CombinedOutput(); err != nil {
		t.Fatalf("abi.h differs from %s: %v\n%s", header, err, out)
	}
}
