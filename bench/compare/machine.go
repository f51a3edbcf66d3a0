package compare

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/internal/atomicfile"
)

// Machine says when, where and how often was measured. An empty field is not known, which
// stops no comparison.
type Machine struct {
	Date        string      `json:"date"`
	CPUs        int         `json:"cpus"`
	CPU         string      `json:"cpu_model,omitempty"`
	Kernel      string      `json:"linux"`
	Load        json.Number `json:"load_average,omitempty"` // of a minute, before the first run
	Repetitions int         `json:"repetitions"`            // runs of each side
	Note        string      `json:"note,omitempty"`         // written by hand, for the summary
}

// Facts is the content of a command's machine.json: a struct that embeds Machine.
type Facts interface{ machine() *Machine }

func (m *Machine) machine() *Machine { return m }

// String is one sentence without its period.
func (m *Machine) String() string {
	text := fmt.Sprintf("%s, %d CPUs", m.Date, m.CPUs)
	if m.CPU != "" {
		text += " (" + m.CPU + ")"
	}
	text += ", Linux " + m.Kernel
	if m.Load != "" {
		text += ", load average " + m.Load.String() + " at the start"
	}
	return text
}

// Here returns the description of this machine, now.
func Here() Machine {
	m := Machine{Date: time.Now().UTC().Format("2006-01-02"), CPUs: runtime.NumCPU(), Kernel: "unknown"}
	info, _ := os.ReadFile("/proc/cpuinfo")
	m.CPU = field(string(info), "model name")
	load, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(load), " ")
	m.Load = json.Number(first)
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		// Without what a distributor or a cloud appends.
		m.Kernel, _, _ = strings.Cut(unix.ByteSliceToString(u.Release[:]), "-")
	}
	return m
}

// field finds "key : value" among lines.
func field(text, key string) string {
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == key {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

const machineFile = "machine.json"

// Begin makes the folder, adds to the facts what is known of this machine, and writes
// machine.json. It comes before anything is measured.
func (r *Runner) Begin(facts Facts) error {
	if r.Repetitions < 1 {
		return fmt.Errorf("%d repetitions: expected 1 or more", r.Repetitions)
	}
	if err := os.MkdirAll(r.Out, 0o755); err != nil {
		return err
	}
	*facts.machine() = Here()
	facts.machine().Repetitions = r.Repetitions
	text, err := json.MarshalIndent(facts, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Bytes(filepath.Join(r.Out, machineFile), append(text, '\n'))
}

// facts reads machine.json. Only what may be empty may be absent.
func (r *Runner) facts(into Facts) error {
	path := filepath.Join(r.Out, machineFile)
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("%w: expected the facts of the run", err)
	}
	if err := strict(text, into); err != nil {
		return fmt.Errorf("%s: expected a JSON object with the facts of the run: %w", path, err)
	}
	again, err := json.Marshal(into)
	if err != nil {
		return err
	}
	var has, needs map[string]json.RawMessage
	if err := json.Unmarshal(text, &has); err != nil {
		return err
	}
	if err := json.Unmarshal(again, &needs); err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(needs)) {
		if _, ok := has[key]; !ok {
			return fmt.Errorf("%s: no %q: expected %q", path, key, slices.Sorted(maps.Keys(needs)))
		}
	}
	if n := into.machine().Repetitions; n < 1 {
		return fmt.Errorf("%s: %d repetitions: expected 1 or more", path, n)
	}
	return nil
}
