package restore

import (
	"slices"
	"strings"
)

// checkPermissions looks at what the user may do, and names the subjects that are
// missing. What can't be asked shows when it's needed: as a permission error
// that names the subject.
func (p *planner) checkPermissions() {
	user := p.user
	if p.userErr != nil {
		p.find("permissions", Unknown, "what the user may do couldn't be asked: %v", p.userErr)
		return
	}
	if user.Permissions == nil {
		p.find("permissions", OK, "the user may do everything in account %s", user.Account)
		return
	}
	missing := slices.DeleteFunc(p.neededSubjects(), user.Permissions.Publish.Allows)
	inbox := p.js.NewInbox()
	if !user.Permissions.Subscribe.Allows(inbox + ".1") {
		missing = append(missing, "subscribe to "+inbox+".*")
	}
	if len(missing) > 0 {
		p.find("permissions", Refusal, "the user of account %s lacks permissions: %s", user.Account, strings.Join(missing, ", "))
		return
	}
	p.find("permissions", OK, "the user has the permissions that a restore needs")
}

// neededSubjects are what a restore publishes to.
func (p *planner) neededSubjects() []string {
	name := p.Target.Stream
	calls := []string{"STREAM.RESTORE." + name, "STREAM.UPDATE." + name, "STREAM.DELETE." + name, "STREAM.LIST", "CONSUMER.LIST." + name}
	if p.Target.Existing == TargetEmpty {
		calls = append(calls, "STREAM.CREATE."+name) // to put it back
	}
	if p.o.FullCheck {
		calls = append(calls, "STREAM.SNAPSHOT."+name)
	}
	for _, k := range p.consumers(p.archive.Head) {
		create := "CONSUMER.CREATE." + name + "." + k.Name
		var filter string
		if k.Config.Get("filter_subject", &filter) == nil && filter != "" {
			if p.rename != nil {
				filter = p.rename.subject(filter)
			}
			create += "." + filter
		}
		calls = append(calls, create, "CONSUMER.PAUSE."+name+"."+k.Name)
	}
	subjects := []string{"$JS.SNAPSHOT.RESTORE." + name + ".id"}
	if p.o.FullCheck {
		subjects = append(subjects, "$JS.SNAPSHOT.ACK."+name+".id.1.1")
	}
	for _, c := range calls {
		subjects = append(subjects, p.js.Subject(c))
	}
	return subjects
}
