package session_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/plan/dsl/session"
	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// answer is what a front end reads.
type answer struct {
	Value json.RawMessage
	Error *session.Fault
}

func call(t testing.TB, s *session.Session, message string) answer {
	t.Helper()
	var a answer
	if err := json.Unmarshal(s.Call([]byte(message)), &a); err != nil {
		t.Fatal(err)
	}
	return a
}

// random is a program made by chance, and what MSCCL++ makes of it.
type random struct {
	Calls  []json.RawMessage
	SHA256 string
	Error  string // kind and text
}

func randomPrograms(t testing.TB) []random {
	t.Helper()
	f, err := os.Open("testdata/random.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var out []random
	lines := bufio.NewScanner(z)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r random
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestRandomPrograms compiles programs that were made by chance, with all operations, and compares the plans with those
// that MSCCL++ made of the same calls, by their sums, and mistakes by kind and text.
func TestRandomPrograms(t *testing.T) {
	programs := randomPrograms(t)
	if len(programs) < 400 {
		t.Fatalf("got %d programs, expected at least 400", len(programs))
	}
	for i, r := range programs {
		s := &session.Session{}
		var last answer
		for _, c := range r.Calls {
			if last = call(t, s, string(c)); last.Error != nil {
				break
			}
		}
		switch {
		case last.Error != nil:
			if got := string(last.Error.Kind) + ": " + last.Error.Text; got != r.Error {
				t.Errorf("program %d: got %q, expected %q", i, got, r.Error)
			}
		case r.Error != "":
			t.Errorf("program %d: no mistake, expected %q", i, r.Error)
		default:
			var text bytes.Buffer
			if err := json.Indent(&text, last.Value, "", "  "); err != nil {
				t.Fatal(err)
			}
			sum := sha256.Sum256(text.Bytes())
			if got := hex.EncodeToString(sum[:]); got != r.SHA256 {
				t.Errorf("program %d: the plan has SHA-256 %s, expected %s", i, got, r.SHA256)
			}
		}
	}
}

// TestAllCalls makes every call once and looks at the answers and at the plan.
func TestAllCalls(t *testing.T) {
	s := &session.Session{}
	for _, c := range []struct{ message, value string }{
		{`{"call":"program","name":"all","collective":{"name":"test","inputs":[4,4],"outputs":[2,2]},"num_ranks":2,"protocol":"LL","instances":1,` +
			`"replication_policy":"interleaved","auto_sync":true,"instr_fusion":true,"max_message_size":18446744073709551615}`, ``},
		{`{"call":"rank","rank":1}`, ``},
		{`{"call":"input","rank":1}`, `4`},
		{`{"call":"output","rank":1}`, `2`},
		{`{"call":"scratch","rank":0,"size":2}`, `0`},
		{`{"call":"scratch","rank":0,"size":1}`, `2`},
		{`{"call":"scratch","rank":1,"size":3}`, `0`},
		{`{"call":"scratch_chunks","rank":0}`, `3`},
		{`{"call":"slice","rank":0,"buffer":"s","offset":2,"size":1,"start":0,"stop":1}`, `[0,"s",2,1]`},
		{`{"call":"group","list":[0,1]}`, `0`},
		{`{"call":"barrier","list":[0,1]}`, ``},
		{`{"call":"semaphore","rank":1,"initial_value":1}`, `{"handle":0,"id":0}`},
		{`{"call":"acquire","tb":0,"data_sync":"none"}`, ``},
		{`{"call":"release","tb":0,"data_sync":"before"}`, ``},
		{`{"call":"memory_channel","dst_rank":1}`, `{"handle":0,"id":0}`},
		{`{"call":"memory_channel","src_rank":1}`, `{"handle":1,"id":0}`},
		{`{"call":"memory_channel","dst_rank":1}`, `{"handle":2,"id":1}`},
		{`{"call":"port_channel","dst_rank":1}`, `{"handle":0,"id":0}`},
		{`{"call":"switch_channel","list":[0,1],"buffer":"i"}`, `{"handle":0,"ids":{"0":0,"1":0}}`},
		{`{"call":"switch_channel","list":[0,1],"buffer":"s"}`, `{"handle":1,"ids":{"0":1,"1":1}}`},
		{`{"call":"switch_at","rank":1}`, ``},
		{`{"call":"copy","dst":[0,"o",0,1],"src":[0,"i",0,1],"tb_group":0}`, ``},
		{`{"call":"copy_packets","dst":[0,"s",0,1],"src":[0,"i",0,1],"tb":0}`, ``},
		{`{"call":"unpack_packets","dst":[0,"o",1,1],"src":[0,"s",0,1],"tb":0}`, ``},
		{`{"call":"reduce","dst":[0,"o",0,1],"src":[0,"i",0,1],"others":[[0,"i",1,1]],"tb":1,"reduce_op":"max"}`, ``},
		{`{"call":"reduce","dst":[0,"o",0,1],"src":[0,"i",0,1],"others":[[0,"s",1,1]],"tb":2,"packet":true}`, ``},
		{`{"call":"memory_signal","tb":0,"relaxed":true}`, ``},
		{`{"call":"memory_wait","handle":1,"tb":0,"relaxed":true,"data_sync":"after"}`, ``},
		{`{"call":"memory_put","dst":[1,"i",0,1],"src":[0,"i",0,1],"tb_group":0,"tb":1}`, ``},
		{`{"call":"memory_get","dst":[0,"o",0,1],"src":[1,"i",0,1],"tb":0}`, ``},
		{`{"call":"memory_put_packets","dst":[1,"s",0,1],"src":[0,"i",0,1],"tb":0}`, ``},
		{`{"call":"memory_read_put_packets","dst":[1,"s",1,1],"src":[0,"s",1,1],"tb":0}`, ``},
		{`{"call":"memory_reduce","dst":[0,"o",0,1],"src":[0,"o",0,1],"others":[[1,"i",1,1]],"tb":0}`, ``},
		{`{"call":"port_signal","tb":0}`, ``},
		{`{"call":"port_channel","src_rank":1}`, `{"handle":1,"id":0}`},
		{`{"call":"port_wait","handle":1,"tb":0}`, ``},
		{`{"call":"port_wait","handle":1,"tb":0}`, ``},
		{`{"call":"port_wait","handle":1,"tb":0}`, ``},
		{`{"call":"port_put","dst":[1,"i",0,1],"src":[0,"i",0,1],"tb":0}`, ``},
		{`{"call":"port_put_with_signal","dst":[1,"i",0,1],"src":[0,"i",0,1],"tb":0}`, ``},
		{`{"call":"port_put_with_signal_and_flush","dst":[1,"i",0,1],"src":[0,"i",0,1],"tb":0}`, ``},
		{`{"call":"port_put_packets","dst":[1,"s",2,1],"src":[0,"s",2,1],"tb":0}`, ``},
		{`{"call":"port_read_put_packets","dst":[1,"s",2,1],"src":[0,"s",2,1],"tb":0}`, ``},
		{`{"call":"port_flush","tb":0}`, ``},
		{`{"call":"begin_loop","unit":4096,"num_chunks":1}`, ``},
		{`{"call":"switch_reduce","offset":3,"size":1,"dst":[0,"i",3,1],"tb":3}`, ``},
		{`{"call":"switch_broadcast","offset":3,"size":1,"src":[0,"i",3,1],"tb":3}`, ``},
		{`{"call":"end_loop"}`, ``},
		{`{"call":"switch_broadcast_packets","handle":1,"size":1,"src":[0,"s",0,1],"tb":3}`, ``},
	} {
		a := call(t, s, c.message)
		if a.Error != nil || string(a.Value) != c.value {
			t.Fatalf("%s: got %s %v, expected %s", c.message, a.Value, a.Error, c.value)
		}
	}
	a := call(t, s, `{"call":"compile"}`)
	plan, err := schema.Parse(a.Value)
	if err != nil {
		t.Fatalf("%v: %v", a.Error, err)
	}
	seen := map[schema.OpName]bool{}
	var look func(ops []schema.Op)
	look = func(ops []schema.Op) {
		for _, o := range ops {
			seen[o.Name] = true
			look(o.Ops)
		}
	}
	for _, g := range plan.GPUs {
		for _, b := range g.Blocks {
			look(b.Ops)
		}
	}
	for _, want := range []schema.OpName{schema.Barrier, schema.SemAcquire, schema.SemRelease, schema.RlxSignal, schema.RlxWait, schema.Signal, schema.Wait,
		schema.Flush, schema.Copy, schema.CopyPkt, schema.UnpackPkt, schema.Re, schema.ReducePkt, schema.Put, schema.Get, schema.PutPkt, schema.ReadPutPkt,
		schema.Rre, schema.Pws, schema.Pwsf, schema.Pipeline, schema.GroupReduceStore, schema.GroupStorePkt} {
		if !seen[want] {
			t.Errorf("the plan has no %s", want)
		}
	}
}

// TestWrongMessages expects a kind and a text for messages that are no calls, and the session to go on.
func TestWrongMessages(t *testing.T) {
	s := &session.Session{}
	for _, c := range []struct{ message, kind, text string }{
		{`{`, "TypeError", "not a call"},
		{`{"call":"copy","destination":1}`, "TypeError", "unknown field"},
		{`{"call":"copy"}`, "RuntimeError", "No Program in context"},
		{`{"call":"program","protocol":"LL128"}`, "AssertionError", "Given protocol: LL128. Must be either Simple, LL"},
		{`{"call":"program","replication_policy":"twice"}`, "ValueError", "no replication_policy"},
		{`{"call":"program","instances":0,"collective":{"name":"test","inputs":[1],"outputs":[1]}}`, "ValueError", "Number of instances"},
		{`{"call":"program","name":"x","collective":{"name":"test","inputs":[1],"outputs":[1]}}`, "", ""},
		{`{"call":"program","name":"x"}`, "RuntimeError", "the session has a program"},
		{`{"call":"fly"}`, "TypeError", "unknown call"},
		{`{"call":"copy","dst":[0,"i",0,1],"tb":0}`, "TypeError", "needs dst and src"},
		{`{"call":"copy","dst":[0,"i",0],"src":[0,"i",0,1],"tb":0}`, "TypeError", "a chunk has 4 fields"},
		{`{"call":"copy","dst":[0,"x",0,1],"src":[0,"i",0,1],"tb":0}`, "TypeError", "no buffer type"},
		{`{"call":"copy","dst":[0,"o",0,1],"src":[0,"i",0,1]}`, "RuntimeError", "Either 'tb'"},
		{`{"call":"copy","dst":[0,"o",0,1],"src":[0,"i",0,1],"tb_group":0}`, "IndexError", "no thread block group 0"},
		{`{"call":"memory_signal","handle":3,"tb":0}`, "IndexError", "no memory channel 3"},
		{`{"call":"semaphore"}`, "", ""},
		{`{"call":"acquire","tb":0,"data_sync":"later"}`, "ValueError", "no data_sync"},
		{`{"call":"acquire"}`, "TypeError", "needs tb"},
		{`{"call":"reduce","dst":[0,"o",0,1],"src":[0,"i",0,1],"tb":0,"reduce_op":"median"}`, "ValueError", "no reduce_op"},
		{`{"call":"slice","buffer":"s","size":1,"stop":2}`, "RuntimeError", "Index range from 0 - 2 is out of bounds for buffer s. Buffer size: 1"},
		{`{"call":"copy","dst":[0,"o",0,1],"src":[0,"i",0,1],"tb":0}`, "", ""},
		{`{"call":"compile"}`, "", ""},
	} {
		a := call(t, s, c.message)
		switch {
		case c.kind == "" && a.Error == nil:
		case a.Error == nil || string(a.Error.Kind) != c.kind || !strings.Contains(a.Error.Text, c.text):
			t.Errorf("%s: got %v, expected %s: %s", c.message, a.Error, c.kind, c.text)
		}
	}
}

// FuzzCall sends whatever it finds and expects an answer, and no loss of the session.
func FuzzCall(f *testing.F) {
	for _, r := range randomPrograms(f)[:20] {
		for _, c := range r.Calls {
			f.Add([]byte(c))
		}
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		s := &session.Session{}
		call(t, s, `{"call":"program","name":"x","collective":{"name":"test","inputs":[2,2],"outputs":[2,2]}}`)
		call(t, s, `{"call":"memory_channel","dst_rank":1}`)
		call(t, s, `{"call":"switch_channel","list":[0,1],"buffer":"i"}`)
		call(t, s, string(message))
		call(t, s, `{"call":"end_loop"}`)
		call(t, s, `{"call":"compile"}`)
	})
}
