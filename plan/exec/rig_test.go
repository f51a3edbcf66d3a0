package exec_test

import (
	"testing"

	"github.com/mscclpp-go/mscclpp/internal/ranktest"
)

func TestMain(m *testing.M) { ranktest.Main(m) }

var job, jobWith = ranktest.Job, ranktest.JobWith
