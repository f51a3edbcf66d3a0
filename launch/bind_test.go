package launch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/internal/processors"
)

func printAffinity() {
	list, err := processors.Allowed()
	if err != nil {
		panic(err)
	}
	for _, cpu := range list {
		fmt.Printf("rank %s on %d\n", os.Getenv("RANK"), cpu)
	}
}

// machine writes a sysfs of two sockets, each one NUMA node of two cores with two
// threads: 0,4 | 1,5 and 2,6 | 3,7.
func machine(t *testing.T) string {
	root := t.TempDir()
	put := func(path, text string) {
		full := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("cpu/online", "0-7")
	put("node/online", "0-2")
	put("node/node0/cpulist", "0-1,4-5")
	put("node/node1/cpulist", "2-3,6-7")
	put("node/node2/cpulist", "") // memory only
	for cpu := range 8 {
		dir := fmt.Sprintf("cpu/cpu%d/topology/", cpu)
		put(dir+"physical_package_id", fmt.Sprint(cpu%4/2))
		put(dir+"die_id", "0")
		put(dir+"core_id", fmt.Sprint(cpu%2))
	}
	return root
}

func TestBindPolicies(t *testing.T) {
	sys := machine(t)
	all := func(int) bool { return true }
	for _, c := range []struct {
		policy  string
		n       int
		allowed func(int) bool
		want    string
	}{
		{"core", 4, all, "0,4 1,5 2,6 3,7"},
		{"core", 2, all, "0,4 1,5"},
		{"numa", 2, all, "0-1,4-5 2-3,6-7"},
		{"numa", 3, all, "0-1,4-5 0-1,4-5 2-3,6-7"},
		{"numa", 1, all, "0-1,4-5"},
		{"socket", 2, all, "0-1,4-5 2-3,6-7"},
		{"auto", 4, all, "0-1,4-5 0-1,4-5 2-3,6-7 2-3,6-7"},
		{"auto", 4, func(c int) bool { return c == 2 || c == 3 }, ""}, // one node is left: nothing to choose
		{"core", 2, func(c int) bool { return c > 1 && c < 5 }, "2 3"},
		{"socket", 1, func(c int) bool { return c == 6 }, "6"},
	} {
		masks, err := bind(c.policy, c.n, sys, c.allowed)
		if err != nil {
			t.Errorf("%s, %d ranks: %v", c.policy, c.n, err)
			continue
		}
		var words []string
		for _, m := range masks {
			words = append(words, m.String())
		}
		if got := strings.Join(words, " "); got != c.want {
			t.Errorf("%s, %d ranks: %q, expected %q", c.policy, c.n, got, c.want)
		}
	}
}

func TestBindRefusals(t *testing.T) {
	sys := machine(t)
	if _, err := bind("core", 5, sys, func(int) bool { return true }); !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), "5 ranks, but 4 cores") {
		t.Errorf("5 ranks on 4 cores: %v", err)
	}
	if _, err := bind("core", 1, sys, func(int) bool { return false }); !errors.Is(err, framework.ErrUnavailable) {
		t.Errorf("no processor: %v", err)
	}
	if _, err := bind("thread", 1, sys, func(int) bool { return true }); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("unknown policy: %v", err)
	}
	if _, err := bind("numa", 1, t.TempDir(), func(int) bool { return true }); err == nil {
		t.Error("a machine without sysfs was bound")
	}
}

func TestKernelLists(t *testing.T) {
	path := filepath.Join(t.TempDir(), "list")
	for text, want := range map[string]string{"0": "0", "0-3": "0-3", "0-1,4,6-7\n": "0-1,4,6-7", "": "", "3-1": "error", "x": "error", "1-": "error", "0-99999999": "error"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := readList(path)
		got := m.String()
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%q = %q, expected %q (%v)", text, got, want, err)
		}
	}
}

// The mask is in force before the program's first instruction.
func TestRanksAreBound(t *testing.T) {
	cores, err := domains("/sys/devices/system", "core", allowedHere(t))
	if err != nil {
		t.Fatal(err)
	}
	last := Mask{cores[len(cores)-1][0]}
	j := helper(2, "affinity")
	j.Masks = []Mask{{cores[0][0]}, last}
	_, out, _ := run(t, j)
	want := []string{fmt.Sprintf("rank 0 on %d\n", cores[0][0]), fmt.Sprintf("rank 1 on %d\n", last[0])}
	for _, w := range want {
		if strings.Count(out, w) != 1 || strings.Count(out, "\n") != 2 {
			t.Errorf("output %q, expected %q", out, want)
		}
	}
}

func allowedHere(t *testing.T) func(int) bool {
	list, err := processors.Allowed()
	if err != nil {
		t.Fatal(err)
	}
	return func(cpu int) bool { return slices.Contains(list, cpu) }
}

func TestBindOfThisMachine(t *testing.T) {
	for _, policy := range []string{"none", "numa", "socket", "auto"} {
		masks, err := Bind(policy, 3)
		if err != nil {
			t.Errorf("%s: %v", policy, err)
		}
		if policy == "none" && masks != nil || len(masks) != 0 && len(masks) != 3 {
			t.Errorf("%s: %v", policy, masks)
		}
	}
}
