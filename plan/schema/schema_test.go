package schema_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// every is a plan with an operation of every form, as MSCCL++ writes it.
const every = "testdata/every.json"

func read(t testing.TB, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestSame reads plans and writes them again, in several forms.
func TestSame(t *testing.T) {
	text := strings.TrimRight(read(t, every), "\n")
	p, err := schema.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(p.Encode(2)); got != text {
		t.Errorf("it is another text:\n%s", got)
	}
	for _, indent := range []int{schema.Compact, 0, 4} {
		again, err := schema.Parse(p.Encode(indent))
		if err != nil {
			t.Fatal(err)
		}
		if got := string(again.Encode(2)); got != text {
			t.Errorf("indent %d: it is another plan:\n%s", indent, got)
		}
	}
	files, err := filepath.Glob("../verify/testdata/*/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d plans in one line, %v", len(files), err)
	}
	for _, file := range files {
		line := read(t, file)
		if p, err = schema.Parse([]byte(line)); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if got := string(p.Encode(schema.Compact)) + "\n"; got != line {
			t.Errorf("%s: it is another text: %s", file, got)
		}
	}
}

// TestStrings writes names as Python does.
func TestStrings(t *testing.T) {
	p, err := schema.Parse([]byte(read(t, every)))
	if err != nil {
		t.Fatal(err)
	}
	p.Name = "a\"\\/\n\r\t\b\f\x01\x7fé€😀"
	want := `"name": "a\"\\/\n\r\t\b\f\u0001\u007f\u00e9\u20ac\ud83d\ude00", `
	text := p.Encode(schema.Compact)
	if !strings.Contains(string(text), want) {
		t.Errorf("got %.120s, expected in it %s", text, want)
	}
	if again, err := schema.Parse(text); err != nil || again.Name != p.Name {
		t.Errorf("got %v, expected the name %q", err, p.Name)
	}
}

func TestDefaults(t *testing.T) {
	p, err := schema.Parse([]byte(`{"name": "x", "collective": "test", "protocol": "Simple", "inplace": false, "gpus":
		[{"id": 0, "input_chunks": 0, "output_chunks": 0, "scratch_chunks": 0, "threadblocks": [{"id": 0, "ops": []}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if p.ThreadsPerBlock != 1024 || p.Alignment != 16 || p.MinSize != 0 || p.MaxSize != schema.DefaultMaxSize || p.DoubleScratch || p.ReuseResources {
		t.Errorf("got %+v", p)
	}
}

// TestFiles reads and writes files, compressed ones too.
func TestFiles(t *testing.T) {
	p, err := schema.ReadFile(every)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"plan.json", "plan.json.gz"} {
		file := filepath.Join(t.TempDir(), name)
		if err := p.WriteFile(file); err != nil {
			t.Fatal(err)
		}
		again, err := schema.ReadFile(file)
		if err != nil || !bytes.Equal(again.Encode(2), p.Encode(2)) {
			t.Errorf("%s: it is another plan: %v", name, err)
		}
		if packed := strings.HasPrefix(read(t, file), "\x1f\x8b"); packed != strings.HasSuffix(name, ".gz") {
			t.Errorf("%s: compressed is %v", name, packed)
		}
	}
	if _, err := schema.ReadFile(filepath.Join(t.TempDir(), "absent")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v for a file that is not there", err)
	}
}

// TestRefused changes one thing of a plan at a time. Errors name the place with its line.
func TestRefused(t *testing.T) {
	text := read(t, every)
	for _, x := range refusals {
		if !strings.Contains(text, x.old) {
			t.Errorf("%q is not in the plan", x.old)
			continue
		}
		changed := strings.Replace(text, x.old, x.new, 1)
		_, err := schema.Parse([]byte(changed))
		var wrong *schema.Error
		if !errors.As(err, &wrong) || !errors.Is(err, framework.ErrInvalid) {
			t.Errorf("%q in place of %q: got %v, expected an error of class ErrInvalid", x.new, x.old, err)
			continue
		}
		if !strings.Contains(err.Error(), x.want) {
			t.Errorf("%q in place of %q: got %v, expected in it %q", x.new, x.old, err, x.want)
		}
		from := 1 + strings.Count(text[:strings.Index(text, x.old)], "\n")
		to := from + strings.Count(x.new, "\n")
		if wrong.Line < max(1, from-x.far) || wrong.Line > to+x.far {
			t.Errorf("%q in place of %q: got line %d, expected one of %d to %d: %v", x.new, x.old, wrong.Line, from-x.far, to+x.far, err)
		}
	}
}

// TestSurplus changes plans that programs make: Check refuses what no file may have.
func TestSurplus(t *testing.T) {
	for _, x := range []struct {
		op     int // of block 0
		change func(*schema.Op)
		want   string
	}{
		{0, func(o *schema.Op) { o.Group = &schema.GroupSlice{ID: 0, Size: 1} }, `operation 0 (nop): it has no "tbg_info"`},
		{1, func(o *schema.Op) { o.Semaphores = []int{0} }, `operation 1 (rlxsignal): it has no "semaphore_ids"`},
		{4, func(o *schema.Op) { o.Reduce = schema.Sum }, `operation 4 (copy): it has no "reduce_op"`},
		{4, func(o *schema.Op) { o.Load = &schema.GroupLoad{} }, `operation 4 (copy): it has no "buffer_type"`},
		{20, func(o *schema.Op) { o.Src = []schema.Operand{{}} }, `operation 20 (signal): it has no "src_buff"`},
		{20, func(o *schema.Op) { o.ChannelIDs = nil }, "operation 20 (signal): no channel"},
		{23, func(o *schema.Op) { o.Ops = []schema.Op{{Name: schema.Nop}} }, `operation 23 (barrier): it has no "ops"`},
		{23, func(o *schema.Op) { o.Name = "x" }, "operation 23 (x): unknown operation"},
	} {
		p, err := schema.Parse([]byte(read(t, every)))
		if err != nil {
			t.Fatal(err)
		}
		x.change(&p.GPUs[0].Blocks[0].Ops[x.op])
		var wrong *schema.Error
		if err := p.Check(); !errors.As(err, &wrong) || !strings.Contains(err.Error(), x.want) {
			t.Errorf("got %v, expected %s", err, x.want)
		}
	}
}

func TestLimits(t *testing.T) {
	text := []byte(read(t, every))
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	all := schema.DefaultLimits
	for _, x := range []struct {
		change func(*schema.Limits)
		text   []byte
		want   string
	}{
		{func(l *schema.Limits) { l.Bytes = 100 }, text, "the text is longer than 100 bytes, the limit"},
		{func(l *schema.Limits) { l.Bytes = 1000 }, packed.Bytes(), "the text is longer than 1000 bytes, the limit"},
		{func(*schema.Limits) {}, packed.Bytes()[:packed.Len()-9], "the compressed file is damaged"},
		{func(l *schema.Limits) { l.Ranks = 1 }, text, "gpus[1]: more than 1 elements, the limit of this list"},
		{func(l *schema.Limits) { l.Blocks = 1 }, text, "gpus[0].threadblocks[1]: more than 1 elements"},
		{func(l *schema.Limits) { l.Ops = 3 }, text, "gpus[0].threadblocks[0].ops[3]: more than 3 elements"},
		{func(l *schema.Limits) { l.Chunks = 3 }, text, "gpus[0].input_chunks: 4 is out of range: expected 0 to 3"},
		{func(l *schema.Limits) { l.List = 1 }, text, "more than 1 elements"},
	} {
		l := all
		x.change(&l)
		if _, err := l.Parse(x.text); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("got %v, expected %q", err, x.want)
		}
	}
}

// FuzzParse reads texts. One that is a plan stays the same when it is written and read.
func FuzzParse(f *testing.F) {
	f.Add([]byte(read(f, every)))
	for _, pattern := range []string{"../verify/testdata/*/*.json", "../verify/testdata/*/*.gz"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			f.Add([]byte(read(f, file)))
		}
	}
	for _, x := range []string{"", "{", "null", `{"name": 1}`, `{"gpus": [[]]}`, "\x1f\x8b\x08", `{"n\u0061me": "\ud800"}`, `{"gpus": [{"id": 1e9}]}`} {
		f.Add([]byte(x))
	}
	limits := schema.Limits{Bytes: 1 << 20, Ranks: 64, Blocks: 64, Ops: 1 << 10, List: 1 << 10, Chunks: 1 << 20}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := limits.Parse(data)
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without words")
			}
			return
		}
		text := p.Encode(schema.Compact)
		again, err := schema.Parse(text)
		if err != nil {
			t.Fatalf("a plan is none when it is written: %v\n%s", err, text)
		}
		if got := again.Encode(schema.Compact); !bytes.Equal(got, text) {
			t.Errorf("got %s, expected %s", got, text)
		}
	})
}
