package mscclpp_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp"
	"github.com/mscclpp-go/mscclpp/framework"
)

// infiniband are the variables of MSCCL++ that set options of both transports over
// InfiniBand, with a value that these take and one that they refuse.
var infiniband = map[string]struct{ value, wrong, option string }{
	"MSCCLPP_IBV_SO":            {"/no/such/libibverbs.so.1", "[1, 2]", "library"},
	"MSCCLPP_FORCE_DISABLE_GDR": {"1", "perhaps", "gpu_direct"},
	"MSCCLPP_HCA_DEVICES":       {"mlx5_0,mlx5_1", "a: b", "devices"},
	"MSCCLPP_IB_GID_INDEX":      {"3", "many", "gid_index"},
}

// A variable of MSCCL++ may be set for all programs of a machine: a job starts with it
// whatever its transports are.
func TestVariablesOfMSCCLPPOnAnyTransport(t *testing.T) {
	for variable, v := range infiniband {
		for _, transport := range []string{"shm", "ib-host", "ib-nonatomic"} {
			t.Run(variable+" "+transport, func(t *testing.T) {
				t.Setenv(variable, v.value)
				open(t, mscclpp.WithSetting("transports", transport), mscclpp.WithSetting("plugins.embed", transport))
			})
		}
	}
}

// A value that a listed transport refuses is an error that names the variable; others do not read it.
func TestWrongVariablesOfMSCCLPP(t *testing.T) {
	for variable, v := range infiniband {
		for _, transport := range []string{"shm", "ib-host", "ib-nonatomic"} {
			t.Run(variable+" "+transport, func(t *testing.T) {
				t.Setenv(variable, v.wrong)
				options := with(mscclpp.WithSetting("transports", transport), mscclpp.WithSetting("plugins.embed", transport))
				job, err := mscclpp.Init(bounded(t), options...)
				if err == nil {
					job.Close()
				}
				if transport == "shm" {
					if err != nil {
						t.Errorf("%v: expected that shm does not mind", err)
					}
				} else if want := variable + ": transport." + transport + "." + v.option; !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), want) {
					t.Errorf("%v: expected ErrInvalid that says %q", err, want)
				}
			})
		}
	}
}
