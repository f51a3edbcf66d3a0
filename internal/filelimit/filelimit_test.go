package filelimit

import (
	"strings"
	"syscall"
	"testing"
)

func TestCheck(t *testing.T) {
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: min(1<<20, before.Max), Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
			t.Error(err)
		}
	}()
	if err := Check(1 << 20); err != nil {
		t.Error(err)
	}
	if err := Check(1<<20 + 1); err == nil || !strings.Contains(err.Error(), "RLIMIT_FSIZE") {
		t.Errorf("%v: expected a refusal that names the limit", err)
	}
}
