// A table whose head sorts by the keyboard, too. Each text is a text node: nothing in it is HTML.
//
// columns: [{name, label, numeric, sortable}]. rows: [{key, tone, cells: [text or {text, href, tone, note,
// buttons: [{name, label, about}]}]}]. Emits sort(name), action(name, key) and choose(key).
export default {
  props: {
    caption: String,
    columns: Array,
    rows: Array,
    sort: String,
    descending: Boolean,
    empty: String,
    chosen: String,
  },
  emits: ["sort", "action", "choose"],
  methods: {
    order(column) {
      if (!column.sortable) return undefined;
      if (column.name !== this.sort) return "none";
      return this.descending ? "descending" : "ascending";
    },
    mark(column) {
      if (column.name !== this.sort) return "";
      return this.descending ? "▼" : "▲";
    },
    cell(value) {
      return typeof value === "object" && value !== null ? value : { text: value };
    },
  },
  template: `
    <div class="table-box" role="region" tabindex="0" :aria-label="caption">
      <table>
        <caption class="unseen">{{ caption }}</caption>
        <thead>
          <tr>
            <th v-for="column in columns" :key="column.name" scope="col" :class="{ number: column.numeric }"
                :aria-sort="order(column)">
              <button v-if="column.sortable" type="button" @click="$emit('sort', column.name)">
                {{ column.label }}<span class="mark" aria-hidden="true">{{ mark(column) }}</span>
              </button>
              <template v-else>{{ column.label }}</template>
            </th>
          </tr>
        </thead>
        <tbody>
          <tr v-for="row in rows" :key="row.key" :class="[row.tone, { chosen: row.key === chosen }]">
            <component v-for="(column, at) in columns" :key="column.name" :is="at ? 'td' : 'th'"
                :scope="at ? undefined : 'row'" :class="[{ number: column.numeric }, column.kind]">
              <template v-for="value in [cell(row.cells[at])]">
                <a v-if="value.href" :href="value.href" :class="value.tone">{{ value.text }}</a>
                <button v-else-if="value.choose" type="button" class="link" :class="value.tone"
                    :aria-expanded="row.key === chosen ? 'true' : 'false'"
                    @click="$emit('choose', row.key)">{{ value.text }}</button>
                <span v-else :class="value.tone">{{ value.text }}</span>
                <small v-if="value.note" class="note">{{ value.note }}</small>
                <button v-for="button in value.buttons || []" :key="button.name" type="button" class="small"
                    :aria-label="button.about" @click="$emit('action', button.name, row.key)">{{ button.label }}</button>
              </template>
            </component>
          </tr>
          <tr v-if="!rows.length"><td :colspan="columns.length" class="empty">{{ empty }}</td></tr>
        </tbody>
      </table>
    </div>`,
};
