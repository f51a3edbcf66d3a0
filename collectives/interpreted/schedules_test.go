package interpreted_test

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated/interpret"
)

// Variables of a run on many schedules.
const (
	fullRun    = "INTERPRET"         // full: more than CI has time for
	rowsFile   = "INTERPRET_ROWS"    // a file that gets a row for each case that has passed; a run goes on behind it
	tableFile  = "INTERPRET_TABLE"   // a file that gets the table of these rows
	runMinutes = "INTERPRET_MINUTES" // no case begins later
	runRanks   = "INTERPRET_RANKS"   // the only numbers of ranks
)

// task is one case of a run on many schedules.
type task struct {
	e         *entry
	code      string // a digest of its instructions
	ranks     int
	schedules uint64
}

// row is the beginning of a task's row. With other instructions it is another one.
func (k *task) row() string {
	return fmt.Sprintf("| %v | %d | %d | %s |", k.e, k.ranks, k.schedules, k.code)
}

// codeOf is a digest of an entry and of all functions that its image has.
func codeOf(e *entry, text string) string {
	var code strings.Builder
	for rest := text; rest != ""; {
		part, behind, _ := strings.Cut(rest, "\n}\n")
		if !strings.Contains(part, ".visible .entry ") || strings.Contains(part, ".visible .entry "+e.name+"(") {
			code.WriteString(part)
		}
		rest = behind
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(code.String())))[:8]
}

// tasks lists all cases: what has to be clean on 1,000 schedules first, then more ranks, then the other types.
func tasks(t testing.TB) (list []*task, texts map[string][]byte) {
	t.Helper()
	all, texts := entries(t, "sm_90")
	add := func(ranks int, schedules uint64, of func(e *entry) bool) {
		for _, e := range all {
			if of(e) && (e.algorithm() != "fetch" || ranks == 2) {
				list = append(list, &task{e, codeOf(e, string(texts[e.image])), ranks, schedules})
			}
		}
	}
	add(2, 1000, stands)
	add(4, 100, stands)
	add(8, 100, stands)
	add(2, 1000, func(e *entry) bool { return !stands(e) })
	return list, texts
}

// Kernels as they are shipped give the reference's results, and no report, on many schedules. By `make interpret`: a run that ends early has
// the rows of what has passed, and another one goes on there.
func TestManySchedules(t *testing.T) {
	if os.Getenv(fullRun) != "full" {
		t.Skipf("needs hours: %s=full", fullRun)
	}
	list, texts := tasks(t)
	rows := openRows(t, os.Getenv(rowsFile))
	end := time.Now().Add(time.Hour * 24)
	if text := os.Getenv(runMinutes); text != "" {
		n, err := strconv.Atoi(text)
		must(t, runMinutes, err)
		end = time.Now().Add(time.Duration(n) * time.Minute)
	}
	left := slices.DeleteFunc(slices.Clone(list), func(k *task) bool { return rows.has(k.row()) })
	if only := strings.Fields(os.Getenv(runRanks)); len(only) > 0 {
		left = slices.DeleteFunc(left, func(k *task) bool { return !slices.Contains(only, strconv.Itoa(k.ranks)) })
	}
	var queue sync.Mutex
	next := func() (k *task) {
		queue.Lock()
		defer queue.Unlock()
		if len(left) > 0 && time.Now().Before(end) {
			k, left = left[0], left[1:]
		}
		return k
	}
	t.Run("all", func(t *testing.T) {
		for n := range runtime.GOMAXPROCS(0) {
			t.Run(strconv.Itoa(n), func(t *testing.T) {
				t.Parallel()
				work(t, next, texts, rows)
			})
		}
	})
	t.Logf("%d cases are left of %d", len(left), len(list))
	if path := os.Getenv(tableFile); path != "" {
		must(t, "table", os.WriteFile(path, []byte(rows.table(list)), 0o644))
	}
}

// work does cases until none is left.
func work(t *testing.T, next func() *task, texts map[string][]byte, rows *resultRows) {
	t.Helper()
	s, loaded := start(t), ""
	for k := next(); k != nil; k = next() {
		if k.e.image != loaded {
			_, _, err := s.Image(k.e.image, texts[k.e.image])
			must(t, k.e.image, err)
			loaded = k.e.image
		}
		row, err := k.do(t, s)
		if err != nil {
			t.Errorf("%v, %d ranks: %v", k.e, k.ranks, err)
			continue
		}
		t.Log(row)
		rows.add(t, row)
	}
}

func (k *task) do(t testing.TB, s *interpret.Session) (string, error) {
	t.Helper()
	x := small
	x.ranks = k.ranks
	stats, err := execute(t, s, k.e, x, 1, k.schedules, true)
	if err != nil {
		return "", err
	}
	return k.row() + fmt.Sprintf(" %d | %v |", stats.Instructions, stats.Time.Round(time.Millisecond)), nil
}

// resultRows are those of a file, which grows by them.
type resultRows struct {
	mu   sync.Mutex
	text string
	file *os.File
}

func openRows(t testing.TB, path string) *resultRows {
	t.Helper()
	if path == "" {
		return &resultRows{}
	}
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	must(t, "rows", err)
	t.Cleanup(func() { f.Close() })
	return &resultRows{text: "\n" + string(text), file: f}
}

// has says whether there is a row with this beginning.
func (r *resultRows) has(row string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Contains(r.text, "\n"+row)
}

func (r *resultRows) add(t testing.TB, row string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.text += row + "\n"
	if r.file == nil {
		return
	}
	_, err := fmt.Fprintln(r.file, row)
	must(t, "row", err)
}

const tableHead = "| kernel | ranks | schedules | code | instructions of threads | time |\n|---|---|---|---|---|---|\n"

// table is the rows of these cases, with how many there are.
func (r *resultRows) table(list []*task) string {
	var rows []string
	type group struct {
		ranks     int
		schedules uint64
	}
	done, all := map[group]int{}, map[group]int{}
	for _, k := range list {
		g := group{k.ranks, k.schedules}
		all[g]++
		if _, row, ok := strings.Cut(r.text, "\n"+k.row()); ok {
			row, _, _ = strings.Cut(row, "\n")
			rows = append(rows, k.row()+row)
			done[g]++
		}
	}
	text := fmt.Sprintf("# Kernels on many schedules\n\n%d of %d cases have passed:\n\n", len(rows), len(list))
	groups := make([]group, 0, len(all))
	for g := range all {
		groups = append(groups, g)
	}
	slices.SortFunc(groups, func(a, b group) int { return cmp.Compare(a.ranks, b.ranks) })
	for _, g := range groups {
		text += fmt.Sprintf("- %d ranks, %d schedules: %d of %d\n", g.ranks, g.schedules, done[g], all[g])
	}
	return text + "\n" + tableHead + strings.Join(rows, "\n") + "\n"
}

// Rows that are there are not made again, unless the instructions are others, and a table counts those of its cases.
func TestRowsAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rows")
	a, b, c := &entry{image: "a", name: "mscclpp_x"}, &entry{image: "b", name: "mscclpp_x"}, &entry{image: "c", name: "mscclpp_x"}
	openRows(t, path).add(t, (&task{a, "1", 2, 100}).row()+" 5 | 1ms |")
	openRows(t, path).add(t, (&task{b, "1", 2, 100}).row()+" 6 | 1ms |")
	again := openRows(t, path)
	list := []*task{{a, "1", 2, 100}, {b, "1", 2, 100}, {b, "1", 2, 10}, {b, "2", 2, 100}, {c, "1", 2, 100}}
	for i, k := range list {
		if again.has(k.row()) != (i < 2) {
			t.Errorf("%s: there %v, expected %v", k.row(), i >= 2, i < 2)
		}
	}
	table := again.table(list)
	for _, want := range []string{"\n2 of 5 cases", "- 2 ranks, 100 schedules: 2 of 4\n", "- 2 ranks, 10 schedules: 0 of 1\n", "\n| a/x | 2 | 100 | 1 | 5 | 1ms |\n| b/x | 2 | 100 | 1 | 6 | 1ms |\n"} {
		if !strings.Contains(table, want) {
			t.Errorf("the table has no %q:\n%s", want, table)
		}
	}
}

// An entry's code is another one when its instructions are others, or those of a function; not when another entry's are.
func TestCodeOfAnEntry(t *testing.T) {
	const text = ".version 8\n.func f()\n{\n\tret;\n}\n.visible .entry a(\n)\n{\n\texit;\n}\n.visible .entry b(\n)\n{\n\tadd;\n}\n"
	a := &entry{name: "a"}
	for change, same := range map[string]bool{"ret": false, "exit": false, "add": true} {
		if got := codeOf(a, text) == codeOf(a, strings.ReplaceAll(text, change, "trap")); got != same {
			t.Errorf("%s changed: the same code %v, expected %v", change, got, same)
		}
	}
}

// The committed table is one that was written by a run: it has as many rows as it says, of kernels that there are.
func TestCommittedTable(t *testing.T) {
	text, err := os.ReadFile("../../docs/results/interpreter/schedules.md")
	must(t, "table", err)
	head, body, ok := strings.Cut(string(text), tableHead)
	_, counts, _ := strings.Cut(head, "\n\n")
	var said, all int
	if _, err := fmt.Sscanf(counts, "%d of %d cases", &said, &all); err != nil || !ok {
		t.Fatalf("%v: expected a count of cases, and a table", err)
	}
	list, _ := tasks(t)
	known, names := map[string]bool{}, map[string]bool{}
	for _, k := range list {
		known[k.row()], names[k.e.String()] = true, true
	}
	rows, older, seen := strings.Split(strings.TrimSpace(body), "\n"), 0, map[string]bool{}
	for _, row := range rows {
		cells := strings.Split(row, " | ")
		if len(cells) != 6 || seen[row] {
			t.Fatalf("%s: expected six cells, once", row)
		}
		seen[row] = true
		if !known[strings.Join(cells[:4], " | ")+" |"] {
			older++
		}
		if name := strings.TrimPrefix(cells[0], "| "); !names[name] {
			t.Errorf("%s: there is no such kernel", name)
		}
	}
	if len(rows) != said || said > all {
		t.Errorf("%d rows, and %d of %d by the count", len(rows), said, all)
	}
	t.Logf("%d rows of %d cases; %d are of instructions that have changed since", len(rows), len(list), older)
}
