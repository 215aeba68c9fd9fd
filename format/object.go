package format

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
)

// Object is a JSON object whose members are kept as they were read, so that a
// field which this version of jetkeep doesn't know survives a round trip. It
// carries stream and consumer configurations.
//
// The zero value is an empty object. Objects share their member values; use
// [Object.Clone] before changing one that others hold.
type Object struct {
	members map[string]json.RawMessage
}

// ParseObject reads a JSON object. Anything else, null included, is an error.
func ParseObject(data []byte) (Object, error) {
	var o Object
	if err := o.UnmarshalJSON(data); err != nil {
		return Object{}, err
	}
	return o, nil
}

// UnmarshalJSON reads the members; it refuses anything but an object.
func (o *Object) UnmarshalJSON(data []byte) error {
	if !bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")) {
		return fmt.Errorf("expected a JSON object")
	}
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal(data, &members); err != nil {
		return err
	}
	o.members = members
	return nil
}

// MarshalJSON writes the members, sorted by name.
func (o Object) MarshalJSON() ([]byte, error) {
	if o.members == nil {
		return []byte("{}"), nil
	}
	return json.Marshal(o.members)
}

// Has reports whether the member is there, be it null.
func (o Object) Has(name string) bool {
	_, ok := o.members[name]
	return ok
}

// Raw returns a member as it was read, or nil when it isn't there.
func (o Object) Raw(name string) json.RawMessage { return o.members[name] }

// Get decodes a member into v. A member that isn't there leaves v as it is.
func (o Object) Get(name string, v any) error {
	raw, ok := o.members[name]
	if !ok {
		return nil
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("field %q: %w", name, err)
	}
	return nil
}

// Set replaces a member. It panics when v can't be written as JSON, which is a
// mistake of the caller.
func (o *Object) Set(name string, v any) {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("format: set %q: %v", name, err))
	}
	if o.members == nil {
		o.members = map[string]json.RawMessage{}
	}
	o.members[name] = raw
}

// Delete removes members; those that aren't there don't matter.
func (o *Object) Delete(names ...string) {
	for _, n := range names {
		delete(o.members, n)
	}
}

// Clone returns an object that can be changed without changing o.
func (o Object) Clone() Object { return Object{members: maps.Clone(o.members)} }

// Names returns the member names in no particular order.
func (o Object) Names() []string {
	names := make([]string, 0, len(o.members))
	for n := range o.members {
		names = append(names, n)
	}
	return names
}

// Decode decodes the whole object into v, ignoring members that v lacks.
func (o Object) Decode(v any) error {
	raw, err := o.MarshalJSON()
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, v)
}
