package restore

import (
	"strings"
	"testing"

	"github.com/jetkeep/jetkeep/internal/jsapi"
)

// A tier's limit of storage holds for each replica, an account's for all. (Tiers
// come with operator mode only; the server's answer is made here.)
func TestStorageOfTiers(t *testing.T) {
	t.Parallel()
	limits := func(store int64) jsapi.Tier {
		return jsapi.Tier{Storage: 600, ReservedStorage: 900, Limits: jsapi.Limits{MaxStorage: store, MaxMemory: -1}}
	}
	for _, c := range []struct {
		account  jsapi.AccountInfo
		replicas int
		level    Level
		words    string
	}{
		{jsapi.AccountInfo{Tier: limits(1000)}, 1, OK, "1000, of which 900"},
		{jsapi.AccountInfo{Tier: limits(999)}, 1, Refusal, "999, of which 900"},
		{jsapi.AccountInfo{Tier: limits(1200)}, 3, OK, "300 bytes"},
		{jsapi.AccountInfo{Tier: limits(1199)}, 3, Refusal, "300 bytes"},
		{jsapi.AccountInfo{Tier: limits(-1)}, 3, OK, "no limit"},
		{jsapi.AccountInfo{Tier: limits(0), Tiers: map[string]jsapi.Tier{"R3": limits(400)}}, 3, OK, "1200, of which 900"},
		{jsapi.AccountInfo{Tier: limits(-1), Tiers: map[string]jsapi.Tier{"R3": limits(399)}}, 3, Refusal, "1197, of which 900"},
		{jsapi.AccountInfo{Tier: limits(-1), Tiers: map[string]jsapi.Tier{"R3": limits(400)}}, 1, Refusal, "no limits for 1 replicas"},
	} {
		p := &planner{Plan: &Plan{scan: &scan{bytes: 100}}, account: &c.account}
		p.checkStorage(config{Replicas: c.replicas})
		if f := p.Findings[0]; f.Level != c.level || !strings.Contains(f.Text, c.words) {
			t.Errorf("%+v with %d replicas: %+v", c.account, c.replicas, f)
		}
	}
}
