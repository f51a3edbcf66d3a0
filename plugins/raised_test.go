package plugins

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const raisedKey = "PLUGINS_TEST_LIBRARY"

func init() {
	roles["raised"] = func() {
		f, err := OpenLibrary(os.Getenv(raisedKey), "")
		if err == nil {
			f.Close()
		}
		fmt.Println(err)
	}
}

// A set-user-ID program refuses files that its user names; the same program without the bit takes them.
func TestOpenLibraryBySetUserID(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, who makes a program set-user-ID")
	}
	const other = 65534
	dir, err := os.MkdirTemp("/opt", "mscclpp-raised-") // all users reach it, and none but root may write there
	if err != nil {
		t.Skip("needs a folder of root's: ", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	program, library := filepath.Join(dir, "program"), filepath.Join(dir, "libx.so")
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(program, self, 0o755), os.WriteFile(library, []byte("contents"), 0o644)); err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[os.FileMode]string{0o755: "<nil>", 0o755 | os.ModeSetuid: "more rights than its user"} {
		if err := os.Chmod(program, mode); err != nil {
			t.Fatal(err)
		}
		c := exec.CommandContext(t.Context(), program)
		c.Env = []string{roleKey + "=raised", raisedKey + "=" + library}
		c.Dir = dir
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: other, Gid: other}}
		if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("mode %v: %v, %s: expected %q", mode, err, out, want)
		}
	}
}
